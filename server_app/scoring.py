"""When versions are evaluated, and how long their scores are waited for."""

from __future__ import annotations

import math
from collections.abc import Callable

from server_app.parts import Parts
from server_app.reach import Reach

_PATIENCE = 1.5


def patience_s(parts: Parts) -> float:
    """Return how long a task may take before it is overdue: `run.wait-s`, or 1.5 times the longest task so far."""
    return max(parts.settings.run.wait_s, _PATIENCE * parts.progress.longest_task_s)


class Scoring:
    """Evaluates the versions whose turn has come: beside training where there are no rounds, else between them."""

    def __init__(self, parts: Parts, reach: Reach, collect: Callable[[], object]) -> None:
        """Evaluate through `parts` whom `reach` finds; `collect` reads one answer, or waits until one may have come."""
        self._parts = parts
        self._mail = parts.mail
        self._reach = reach
        self._collect = collect
        self._until = -math.inf

    def evaluate_if_due(self) -> None:
        """Evaluate the current version if it is the last one, or its turn has come."""
        parts, version = self._parts, self._parts.model.version
        every, last = parts.settings.run.evaluate_every, version >= parts.settings.aggregation.rounds
        if not last and not (every and version % every == 0):
            return
        if parts.settings.aggregation.is_synchronous:
            self.evaluate("validation")
        else:
            parts.evaluation.open_beside_training(parts.model)

    def evaluate(self, split: str) -> None:
        """Score the current model everywhere; training waits for the answers, so that both engines do the same."""
        self._reach.look()
        if not self._parts.evaluation.open(self._parts.model, split, self._reach.idle()):
            return
        self._until = self._mail.now() + self._longest_s()
        while self.is_awaited():
            self._collect()
        self._parts.evaluation.close()

    def ask(self) -> None:
        """Ask free hospitals for the scores of the current version that are still wanted."""
        self._reach.look()
        now = self._parts.progress.evaluation
        if now is None or now.version != self._parts.model.version:
            return
        if self._parts.evaluation.ask(self._reach.idle()):
            self._until = self._mail.now() + self._longest_s()

    def is_awaited(self) -> bool:
        """Return whether scores that were asked for may still come in time."""
        return self._mail.in_flight.count("evaluate") > 0 and self._mail.now() < self._until

    def _longest_s(self) -> float:
        """Return how long hospitals are waited for: without rounds, nobody may hold up the end."""
        settings = self._parts.settings
        if not settings.aggregation.is_synchronous:
            return patience_s(self._parts)
        deadline_s = settings.aggregation.deadline_s
        return max(deadline_s, settings.run.wait_s) if deadline_s else math.inf
