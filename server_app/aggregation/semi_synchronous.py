"""Semi-synchronous aggregation: a version at fixed times, of whatever has arrived (as in Stripelis et al., 2102.02849).

Fast hospitals wait for the next tick at most, slow ones are not dropped: theirs joins a later version with its
staleness. Deviation: the paper lets fast hospitals train on until the tick; here they are free.
"""

from __future__ import annotations

import math

from federation.config import AggregationConfig
from server_app.aggregation.arrivals import Arrivals
from server_app.aggregation.rule import NEVER, Situation, Update

_SLACK = 1e-9


class SemiSynchronous(Arrivals):
    """Updates are due at every multiple of `aggregation.period-s` on the run's clock, if there are enough of them."""

    def __init__(self, settings: AggregationConfig, *, seed: int) -> None:
        """Build the rule."""
        super().__init__(settings, seed=seed)
        self._tick = NEVER

    def choose(self, situation: Situation) -> list[str]:
        """Return the free hospitals as every asynchronous rule does, and look when the next tick is."""
        if self._tick == NEVER or (situation.now >= self._tick and not self._are_enough()):
            self._tick = self._next_tick(situation.now)
        return super().choose(situation)

    def is_due(self, now: float) -> bool:
        """Return whether the tick has come for enough updates, or no more can come before it."""
        return (now >= self._tick and self._are_enough()) or super().is_due(now)

    def next_deadline(self) -> float:
        """Return the next tick."""
        return self._tick

    def take(self) -> list[Update]:
        """Return the collected updates in order of arrival and wait for the next tick."""
        self._tick = NEVER
        return super().take()

    def _next_tick(self, now: float) -> float:
        return (math.floor(now / self._settings.period_s + _SLACK) + 1) * self._settings.period_s
