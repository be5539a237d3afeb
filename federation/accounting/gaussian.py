"""One release with Gaussian noise, exactly: the analytic Gaussian mechanism, and the classic formula where it holds.

Pure floating-point mathematics without a library, so that a noise multiplier can be checked anywhere. A history of
such releases is one release (`federation.accounting.composition`); sampled ones need an account
(`federation.accounting.accounts`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from federation.accounting.bounds import require_delta, require_epsilon, require_multiplier
from federation.errors import PrivacyError

LARGEST_CLASSIC_EPSILON = 1.0

# Results are rounded up by this share, a hundred times the error of the floating-point evaluation.
_ROUNDING = 1e-10
_SMALL_SHIFT = 1e-5
_FRACTION_FROM = 4.0
_FRACTION_TERMS = 100


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """Return the smallest delta at which one Gaussian release is (epsilon, delta)-private.

    arXiv 1805.06530, theorem 8, with mu = 1 / noise_multiplier:
    Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu). It is evaluated through Mills' ratio
    M(x) = (1 - Phi(x)) / phi(x), which turns both terms into phi(u) (M(u) - M(v)) without exp(epsilon), so nothing
    overflows and small deltas keep their digits.

    Guarantee: bounds the privacy loss of one release whose noise has a standard deviation of noise_multiplier times
        the L2 sensitivity, for the neighbouring relation and the unit that the sensitivity was computed for.
    Not guaranteed: anything about noise that is not Gaussian, or that an attacker can predict.

    Args:
        noise_multiplier: standard deviation of the noise over the L2 sensitivity.
        epsilon: at least 0.

    Raises:
        PrivacyError: an argument is negative, infinite or not a number, or the noise is zero.
    """
    require_multiplier(noise_multiplier)
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise PrivacyError(f"Expected a finite epsilon={epsilon} >= 0.")
    return _delta(1 / noise_multiplier, epsilon)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the smallest epsilon at which one Gaussian release is (epsilon, delta)-private, rounded up by 1e-10.

    The inverse of `gaussian_delta`: 0 where delta alone covers the release, infinite where no double holds epsilon.

    Guarantee: as for `gaussian_delta`.
    Not guaranteed: as for `gaussian_delta`.

    Args:
        noise_multiplier: standard deviation of the noise over the L2 sensitivity.
        delta: between 0 and 1.

    Raises:
        PrivacyError: `delta` is not between 0 and 1, or `noise_multiplier` is not positive and finite.
    """
    require_multiplier(noise_multiplier)
    require_delta(delta)
    shift = 1 / noise_multiplier
    if _delta(shift, 0.0) <= delta:
        return 0.0
    # Phi(-z) <= exp(-z^2 / 2) / 2, so here the first term alone is at most delta.
    enough = shift * (shift / 2 + math.sqrt(-2 * math.log(delta)))
    if not math.isfinite(enough):
        return math.inf
    return _smallest(lambda epsilon: _delta(shift, epsilon) <= delta, 0.0, enough) * (1 + _ROUNDING)


def analytic_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier with which one Gaussian release is (epsilon, delta)-private.

    arXiv 1805.06530, algorithm 1. `gaussian_epsilon` of the result is at most `epsilon`.

    Deviation: the root is found by bisection of theorem 8 itself, not of the paper's two substitutions.
    Guarantee: as for `gaussian_delta`.
    Not guaranteed: as for `gaussian_delta`.

    Raises:
        PrivacyError: `epsilon` is not positive and finite, or `delta` not between 0 and 1.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    below = epsilon * (1 - 3 * _ROUNDING)
    low, high = 1.0, 1.0
    while _delta(1 / low, below) <= delta:
        low /= 2
    while _delta(1 / high, below) > delta:
        high *= 2
    return _smallest(lambda multiplier: _delta(1 / multiplier, below) <= delta, low, high)


def classic_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return sqrt(2 ln(1.25 / delta)) / epsilon, the noise multiplier of the classic Gaussian mechanism.

    Dwork and Roth, The Algorithmic Foundations of Differential Privacy, theorem A.1.

    Guarantee: as for `gaussian_delta`, for epsilon <= 1.
    Not guaranteed: anything above 1, where the formula gives too little noise; and that the noise is the least
        possible: at epsilon 0.2 and delta 1e-5 it is 1.49 times what `analytic_noise_multiplier` needs.

    Raises:
        PrivacyError: `epsilon` is not in (0, 1], or `delta` not between 0 and 1.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    if epsilon > LARGEST_CLASSIC_EPSILON:
        raise PrivacyError(
            f"Expected epsilon={epsilon} <= 1 for the classic formula, which is proven there only and adds too little "
            "noise above: calibrate with the analytic Gaussian mechanism."
        )
    return classic_factor(delta) / epsilon


def classic_factor(delta: float) -> float:
    """Return sqrt(2 ln(1.25 / delta)), which the classic formula divides by epsilon."""
    return math.sqrt(2 * math.log(1.25 / delta))


def _delta(shift: float, epsilon: float) -> float:
    near, far = epsilon / shift - shift / 2, epsilon / shift + shift / 2
    if not math.isfinite(far):
        return 0.0 if near > 0 else 1.0
    if shift < _SMALL_SHIFT:
        # M(u) - M(v) = -mu M'(middle) up to a share of mu^2, where the difference itself would lose its digits.
        middle = epsilon / shift
        density = math.exp(-near * near / 2) / math.sqrt(2 * math.pi)
        return density * shift * _mills_decrease(middle)
    if near >= 0:
        return math.exp(-near * near / 2) / math.sqrt(2 * math.pi) * (_mills(near) - _mills(far))
    return math.erfc(near / math.sqrt(2)) / 2 - math.exp(-near * near / 2) / math.sqrt(2 * math.pi) * _mills(far)


def _mills(x: float) -> float:
    """Return (1 - Phi(x)) / phi(x) for x >= 0: by erfc, and by Laplace's continued fraction where that is exact."""
    if x < _FRACTION_FROM:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    fraction = x
    for term in range(_FRACTION_TERMS, 0, -1):
        fraction = x + term / fraction
    return 1 / fraction


def _mills_decrease(x: float) -> float:
    """Return -M'(x) = 1 - x M(x) for x >= 0, without cancellation for large x."""
    if x < _FRACTION_FROM:
        return 1 - x * _mills(x)
    fraction = x
    for term in range(_FRACTION_TERMS, 1, -1):
        fraction = x + term / fraction
    return 1 / (x * fraction + 1)


def _smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest double above `low` (where `holds` is false) for which it holds, as it does at `high`."""
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
