"""What an aggregation rule decides, so that synchronous and asynchronous rules run in the same engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from federation.parameters import Parameters

NEVER = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An admitted model update.

    Attributes:
        hospital_id: who sent it.
        base_version: the model version it started from.
        examples: training images behind it.
        parameters: parameters after local training minus parameters received.
    """

    hospital_id: str
    base_version: int
    examples: int
    parameters: Parameters


class AggregationRule(Protocol):
    """Chooses whom to ask, collects what comes back, says when to apply it.

    The engine calls `choose` whenever it could dispatch, then exactly one of `offer` or `lose` for every hospital it
    named, and `take` once `is_due`.
    """

    def choose(self, idle: Sequence[str], now: float) -> list[str]:
        """Return which of the `idle` hospitals (sorted ids) to send the current model to; often none."""

    def offer(self, update: Update) -> bool:
        """Accept `update` for the next version; False when it came too late to count."""

    def lose(self, hospital_id: str) -> None:
        """Learn that nothing usable will come from `hospital_id`."""

    def is_due(self, now: float) -> bool:
        """Return whether the collected updates (perhaps none) should be taken now."""

    def next_deadline(self) -> float:
        """Return the time at which `is_due` may turn true without any message, or `NEVER`."""

    def take(self) -> list[Update]:
        """Return the collected updates in a fixed order and start over."""
