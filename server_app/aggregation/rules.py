"""From `aggregation.rule` to the rule."""

from __future__ import annotations

from federation.config import AggregationConfig
from server_app.aggregation.buffered import Buffered
from server_app.aggregation.fedasync import FedAsync
from server_app.aggregation.fedavg import FedAvg
from server_app.aggregation.rule import AggregationRule
from server_app.aggregation.semi_synchronous import SemiSynchronous


def make_rule(settings: AggregationConfig, *, seed: int, first_round: int) -> AggregationRule:
    """Return the rule that `settings` name.

    Args:
        settings: of aggregation.
        seed: of every random choice the rule makes.
        first_round: number of the first round of a synchronous rule.
    """
    if settings.rule == "fedavg":
        return FedAvg(settings, seed=seed, first_round=first_round)
    if settings.rule == "fedasync":
        return FedAsync(settings, seed=seed)
    if settings.rule == "buffered":
        return Buffered(settings, seed=seed, size=settings.buffer_size)
    return SemiSynchronous(settings, seed=seed)
