"""What an aggregation rule decides, so that synchronous and asynchronous rules run in the same engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from federation.parameters import Parameters

NEVER = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An admitted model update; its tensors may wait on a disk.

    Attributes:
        number: of its task, unique in the run.
        hospital_id: who sent it.
        base_version: the model version it started from.
        examples: training images behind it.
        norm: its L2 norm over all tensors.
        noise_variance: of the noise that it declares, relative: squared noise multiplier times noised steps; 0 without.
        cosine: to the last step of the model when it arrived; 0 where that is not measured.
        load: returns parameters after local training minus parameters received, to be read only.
    """

    number: int
    hospital_id: str
    base_version: int
    examples: int
    norm: float = 0.0
    noise_variance: float = 0.0
    cosine: float = 0.0
    load: Callable[[], Parameters] = field(repr=False, compare=False)

    def without_tensors(self) -> Update:
        """Return what is known of the update beside its tensors, so that nothing holds them any longer."""
        return replace(self, load=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a rule may know when it chooses.

    Attributes:
        now: the engine's time in seconds.
        version: of the current model.
        idle: hospitals that can be asked, sorted by id.
        at_work: tasks of any kind that have not been answered.
        overdue: hospitals among those at work whose task takes unusually long.
        given: applied updates of every hospital that is connected and has budget left.
        tasks: tasks sent in this run so far; names the random draws of a rule.
    """

    now: float
    version: int
    idle: Sequence[str]
    at_work: int = 0
    overdue: frozenset[str] = frozenset()
    given: Mapping[str, int] = field(default_factory=dict)
    tasks: int = 0


class AggregationRule(Protocol):
    """Chooses whom to ask, collects what comes back, says when to apply it.

    The engine calls `choose` whenever it could dispatch, then exactly one of `offer` or `lose` for every hospital it
    named, and `take` once `is_due`.
    """

    def choose(self, situation: Situation) -> list[str]:
        """Return which of the idle hospitals to send the current model to; often none."""

    def expects(self, hospital_id: str) -> bool:
        """Return whether an update of `hospital_id` would still be accepted."""

    def completes(self, hospital_id: str) -> bool:
        """Return whether an update of `hospital_id` would be taken at once, and alone: it need not wait on the disk.

        With others it would be held in memory while they are read, one more model at the peak.
        """

    def offer(self, update: Update) -> bool:
        """Accept `update` for the next version; False when it came too late to count."""

    def restore(self, update: Update) -> None:
        """Take back an update that was accepted before the server was restarted, or taken with too few others."""

    def waiting(self) -> frozenset[str]:
        """Return the hospitals whose updates have been accepted and not taken."""

    def lose(self, hospital_id: str) -> None:
        """Learn that nothing usable will come from `hospital_id`."""

    def resend(self, hospital_id: str, version: int) -> None:
        """Learn that `hospital_id` works on `version` since before the server was restarted."""

    def close(self) -> None:
        """Learn that the last version is made: nobody is expected any more."""

    def is_due(self, now: float) -> bool:
        """Return whether the collected updates (perhaps none) should be taken now."""

    def next_deadline(self) -> float:
        """Return the time at which `is_due` may turn true without any message, or `NEVER`."""

    def take(self) -> list[Update]:
        """Return the collected updates in a fixed order and start over."""
