"""FedAsync: every update makes a version as it arrives (arXiv 1903.03934, algorithm 1).

Deviation: the paper mixes models, x = (1 - a) x + a x_new; here the update is added, x = x + a (x_new - x_base), which
needs no copy of old versions and fits updates that were clipped and noised.
"""

from __future__ import annotations

from federation.config import AggregationConfig
from server_app.aggregation.buffered import Buffered


class FedAsync(Buffered):
    """A buffer of one."""

    def __init__(self, settings: AggregationConfig, *, seed: int) -> None:
        """Build the rule."""
        super().__init__(settings, seed=seed, size=1)
