"""The account of privacy loss distributions: exact for Gaussian releases, dp-accounting's numbers for sampled ones."""

from __future__ import annotations

import math
from functools import lru_cache

from federation.accounting.bounds import require_delta
from federation.accounting.composition import Composition, compose
from federation.accounting.events import History
from federation.accounting.gaussian import gaussian_epsilon
from federation.accounting.losses import INTERVAL, gaussian_loss, sampled_loss
from federation.accounting.rdp import rdp_epsilon

# See `_with_discretization`.
_SPREAD = 0.64 * INTERVAL

# Kept back of delta for what Fourier transforms and cut tails lose: a share, an amount, and an amount per sampled step,
# at least twice what shows beside transforms in extended precision.
_KEPT_SHARE = 1e-3
_KEPT = 1e-12
_KEPT_PER_STEP = 2e-16

# Above it nobody is protected, while distributions grow to gigabytes: there the RDP account answers.
_LARGEST_EPSILON = 40.0


class PldAccount:
    """Epsilon by composed privacy loss distributions.

    Gaussian releases together are one Gaussian release (arXiv 1905.02383, corollary 3.3), whose epsilon is exact
    (arXiv 1805.06530, theorem 8). Poisson-sampled steps: arXiv 2207.04380 on a grid of 1e-4, both directions of
    add/remove, as dp-accounting composes them. With sampled steps, epsilons above 40 are answered by
    `federation.accounting.rdp`, and so are deltas within reach of numerical error: below 1e-11, or below 1e-9 after
    some millions of steps.

    Deviation: of delta, a thousandth, 1e-12 and 2e-16 for each sampled step are kept back for numerical error, and
        Gaussian releases carry the pessimism that dp-accounting's grid would add to them, so that the result is never
        less than dp-accounting's for any delta from 1e-9.
    Guarantee: as for `federation.accounting.rdp.RdpAccount`.
    Not guaranteed: that it is never above the RDP account: where a sampled step's privacy loss is much finer than the
        grid (sampling_probability / noise_multiplier below 1e-4), the grid's pessimism shows over many steps.
    """

    name = "pld"

    def epsilon(self, history: History, delta: float) -> float:
        """Return the epsilon of `history` at `delta`; 0 for an empty history.

        Raises:
            PrivacyError: `delta` is not between 0 and 1.
        """
        require_delta(delta)
        return pld_epsilon(compose(history), delta)


@lru_cache(maxsize=4096)
def pld_epsilon(composition: Composition, delta: float) -> float:
    """Return the epsilon of a history at `delta` by privacy loss distributions."""
    if not composition.gaussians and not composition.sampled:
        return 0.0
    if not math.isfinite(composition.precision):
        return math.inf
    if not composition.sampled:
        return gaussian_epsilon(_with_discretization(composition), delta * (1 - _KEPT_SHARE))
    steps = sum(number for _, number in composition.sampled)
    usable = delta * (1 - _KEPT_SHARE) - _KEPT - _KEPT_PER_STEP * steps
    bound = rdp_epsilon(composition, delta)
    if bound > _LARGEST_EPSILON or usable < delta / 2:
        return bound
    loss = sampled_loss(composition.sampled)
    if composition.gaussians:
        loss = loss.compose(gaussian_loss(_with_discretization(composition)))
    return float(loss.get_epsilon_for_delta(usable))


def _with_discretization(composition: Composition) -> float:
    """Return the noise multiplier of all Gaussian releases together, each discretized on the grid.

    Connecting the dots replaces exp(-loss) by one of its two neighbours on the grid, at random and without changing
    its mean: a factor of mean 1 with two values that lie exp(INTERVAL) apart. Such a factor is smaller in convex order
    than the log-normal exp(s Z - s^2 / 2) with s = 0.64 INTERVAL, whose means below and above any quantile lie
    further apart (their ratio is least at the median, about exp(1.596 s)). A privacy profile is the mean of a convex
    function of exp(-loss), so releases that are discretized one by one and then composed are bounded by the Gaussian
    release with a precision greater by s^2 for each.
    """
    return float((composition.precision + composition.gaussians * _SPREAD**2) ** -0.5)
