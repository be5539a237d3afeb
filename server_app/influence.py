"""From the progress of a run to how much of the model each hospital is, and why it is not more."""

from __future__ import annotations

import math

from server_app.aggregation.weights import size_factor
from server_app.progress import Contribution, Progress
from server_app.summary import Staleness


def weight_share_of(progress: Progress, hospital_id: str) -> float | None:
    """Return the part of `hospital_id` in the weight of all applied updates; None when they weigh nothing.

    The weight of an update is its coefficient in the step that it was part of; what the server's optimizer made of
    that step is not counted.
    """
    total = math.fsum(item.weight for item in progress.contributions.values())
    known = progress.contributions.get(hospital_id, Contribution())
    return known.weight / total if total > 0 else None


def size_share_of(progress: Progress, hospital_id: str, weighting: str) -> float | None:
    """Return the part that `hospital_id` would have by its size alone; None when it never enrolled.

    Args:
        progress: of the run.
        hospital_id: whose part.
        weighting: `aggregation.weighting`.
    """
    sizes = {
        name: size_factor(item.examples, weighting) for name, item in progress.contributions.items() if item.examples
    }
    return sizes[hospital_id] / math.fsum(sizes.values()) if hospital_id in sizes else None


def mean_sizes(progress: Progress) -> dict[str, float]:
    """Return the mean size factor of the applied updates of every hospital that has any."""
    return {name: item.factors["size"] / item.updates for name, item in progress.contributions.items() if item.updates}


def staleness_of(contribution: Contribution) -> Staleness | None:
    """Return how old the applied updates of one hospital were; None when none was applied."""
    if not contribution.updates:
        return None
    return Staleness(mean=contribution.staleness_total / contribution.updates, max=contribution.staleness_max)


def mean_factors(progress: Progress, hospital_id: str) -> dict[str, float]:
    """Return the mean factors of the applied updates of `hospital_id`, without those that were 1 in the whole run."""
    known = progress.contributions.get(hospital_id, Contribution())
    told = [name for name in known.factors if any(_differs(item, name) for item in progress.contributions.values())]
    return {name: known.factors[name] / known.updates for name in told}


def _differs(contribution: Contribution, factor: str) -> bool:
    """Return whether `factor` was not 1 in every applied update: a sum of ones is exact."""
    return contribution.factors.get(factor, 0.0) != contribution.updates
