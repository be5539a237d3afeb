"""How much an update weighs: a product of factors, each a small function whose default is 1.

`weighing` multiplies them and turns the products into the coefficients of a step.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from federation.config import AggregationConfig

_SIZE_FACTORS: Mapping[str, Callable[[int], float]] = {
    "examples": float,
    "uniform": lambda _: 1.0,
    "sqrt": math.sqrt,
}
FEWEST_NORMS = 8
_DEVIATIONS_PER_MAD = 1.4826
_LEAST_RELATIVE_MAD = 0.02


def size_factor(examples: int, weighting: str) -> float:
    """Return the factor for an update behind which `examples` images stand.

    Args:
        examples: at least 1.
        weighting: "examples" (as in FedAvg), "uniform", or "sqrt" (a small hospital stays audible).
    """
    return _SIZE_FACTORS[weighting](examples)


def staleness_factor(staleness: int, settings: AggregationConfig) -> float:
    """Return the factor in [0, 1] for an update that started `staleness` versions ago; 1 for a fresh one.

    Polynomial and hinge are those of FedAsync (arXiv 1903.03934, section 5.2); exponential is alpha^s.

    Args:
        staleness: versions made since the hospital received its model, at least 0.
        settings: names the function in `staleness`, and its parameters.
    """
    if settings.staleness == "exponential":
        return math.pow(settings.staleness_alpha, staleness)
    if settings.staleness == "polynomial":
        return math.pow(1 + staleness, -settings.staleness_exponent)
    if settings.staleness == "hinge":
        late = max(0, staleness - settings.staleness_grace)
        return 1.0 / (settings.staleness_slope * late + 1.0)
    return 1.0


def noise_factor(variance: float, least_variance: float) -> float:
    """Return the factor in [0, 1] for an update that declares noise of `variance`: least_variance / variance.

    Inverse-variance weights give the mean of least variance among independent ones with the same expectation; they are
    scaled so that the least noisy update weighs 1.

    Args:
        variance: declared; 0 without a mechanism.
        least_variance: smallest positive variance to compare with. 0 when there is none: nothing is weighed down, so
            that a single update that declares no noise cannot silence all others.
    """
    if variance <= least_variance or least_variance <= 0:
        return 1.0
    return least_variance / variance


def shift_factor(shift: float) -> float:
    """Return the factor 1 - shift for a hospital whose data are `shift`, in [0, 1], away from the others'."""
    return 1.0 - shift


def anomaly_factor(norm: float, norms: Sequence[float], threshold: float) -> float:
    """Return the factor in [0, 1] for an update with an abnormally large norm: threshold / z where z > threshold.

    z = (norm - median) / (1.4826 MAD) of recent norms, the robust z-score of Iglewicz and Hoaglin (1993); 1.4826 MAD is
    the standard deviation if the norms are normal. The weight is Huber's (Ann. Math. Stat. 35, 1964): however
    large an update is, it moves the model no farther than one at the threshold does.

    Only norms above the median are suspicious. One below cannot move the model far, and a hospital with few images or
    a nearly converged one sends such updates honestly.

    Deviation: the MAD counts as at least 2 % of the median. Norms that are mostly noise agree to a thousandth, and
    updates of one noise level may differ by 3 % because a level spans 5 % of the variance; without this floor such
    harmless differences, or the last bit where the MAD is 0, would be anomalies.

    Args:
        norm: of the update; one that is not finite gets 0.
        norms: recent finite ones to compare it with; fewer than 8 say nothing, and the factor is 1.
        threshold: largest z that is still normal; 0 turns the factor off.
    """
    if not threshold or len(norms) < FEWEST_NORMS:
        return 1.0
    if not math.isfinite(norm):
        return 0.0
    median = statistics.median(norms)
    spread = statistics.median(abs(other - median) for other in norms)
    deviation = _DEVIATIONS_PER_MAD * max(spread, _LEAST_RELATIVE_MAD * median)
    allowed = threshold * deviation
    if not allowed or norm - median <= allowed:
        return 1.0
    return allowed / (norm - median)


def direction_factor(cosine: float) -> float:
    """Return 1 for an update along the last step of the model, 1 + cosine, down to 0, for one against it.

    Args:
        cosine: of the angle between the two; 0 or nan where one of them has no direction.
    """
    if not cosine < 0:
        return 1.0
    return max(0.0, 1.0 + cosine)


def balance_factor(own: int, counts: Sequence[int], exponent: float, limit: float) -> float:
    """Return the factor in [1 / limit, limit] that makes up for rare updates: (mean of `counts` / own)^exponent.

    With exponent 1 and no limit, hospitals that answer at different speeds add up to the same weight over time.

    Args:
        own: applied updates of the hospital, this one included, at least 1.
        counts: applied updates of every enrolled hospital, `own` among them; without any the factor is 1.
        exponent: in [0, 1]; 0 turns the factor off.
        limit: at least 1.
    """
    if not counts:
        return 1.0
    factor = math.pow(sum(counts) / len(counts) / own, exponent)
    return min(limit, max(1.0 / limit, factor))
