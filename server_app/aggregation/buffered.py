"""FedBuff: collect K updates as they arrive, then make a version (arXiv 2106.06639, algorithm 1).

Deviation: a hospital works on each version once at most, where the paper samples anybody free; and who finishes last
before the K-th arrives is not lost, but the first of the next buffer, as there. And where only hospitals that take
unusually long are left to fill the buffer, it is taken as it is, so that a wedged node holds nobody up.
"""

from __future__ import annotations

from federation.config import AggregationConfig
from server_app.aggregation.arrivals import Arrivals
from server_app.aggregation.rule import Situation


class Buffered(Arrivals):
    """Updates are due as soon as `size` have arrived, or when no more can come."""

    def __init__(self, settings: AggregationConfig, *, seed: int, size: int) -> None:
        """Build the rule with a buffer of `size` updates."""
        super().__init__(settings, seed=seed)
        self._size = size

    def completes(self, hospital_id: str) -> bool:
        """Return whether an update of `hospital_id` fills the buffer by itself."""
        return self._size == 1 and self.expects(hospital_id)

    def is_due(self, now: float) -> bool:
        """Return whether the buffer is full, or no more can come before the next version."""
        return len(self._collected) >= self._size or super().is_due(now)

    def _is_anybody_awaited(self, situation: Situation) -> bool:
        """Return whether somebody is at work, but for laggards where enough updates wait for them."""
        overdue = situation.overdue if self._are_enough() else frozenset()
        return bool(self._outstanding - overdue) or situation.at_work > len(overdue)
