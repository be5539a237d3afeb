"""By how many points of accuracy masking differs from no masking, and how such numbers are written."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scipy.stats import t

from deploy.experiments.cells import Result
from deploy.experiments.masking_federations import CLAIM_SEEDS, ELSEWHERE, OWN, ROUNDS, accuracy_name, late_mean

Results = dict[str, Result]


def deltas_of(
    results: Results,
    name: str,
    mode: str,
    source: str = ELSEWHERE,
    *,
    labels: str = OWN,
    version: int = ROUNDS,
    of: str = "accuracy",
) -> list[float]:
    """Return by how many points the mode differs from no masking, for every seed of which both were measured."""
    deltas = []
    for seed in CLAIM_SEEDS[name]:
        masked = accuracy_name(name, mode, seed, source=source, labels=labels)
        cells = masked, accuracy_name(name, "none", seed)
        means = [late_mean(results[cell], version, of=of) for cell in cells if cell in results]
        if len(means) == 2 and means[0] is not None and means[1] is not None:
            deltas.append(100 * (means[0] - means[1]))
    return deltas


def spread(values: Sequence[float]) -> str:
    """Return mean and, of several values, deviation."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


def signed(values: Sequence[float]) -> str:
    """Return mean, with its sign, and deviation."""
    return f"{'+' if statistics.fmean(values) >= 0 else ''}{spread(values)}"


def interval(values: Sequence[float]) -> str:
    """Return the 95 % interval of the mean of several values, by Student's distribution, in words."""
    if len(values) < 2:
        return "no interval"
    reach = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return f"95 % interval of the mean {mean - reach:+.1f} to {mean + reach:+.1f}"
