"""Privacy loss distributions of Gaussian steps, composed by dp-accounting and remembered, because they are dear.

`federation.accounting.pld` turns them into epsilon.
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from federation.accounting.composition import SampledKind

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

# The grid of privacy losses: dp-accounting's default.
INTERVAL = 1e-4

# Above it exp(epsilon) stands alone in exp(epsilon) - 1.
_LARGE_LOSS = 1.0


@lru_cache(maxsize=8)
def sampled_loss(sampled: tuple[tuple[SampledKind, int], ...]) -> PrivacyLossDistribution:
    """Return the distribution after all `sampled` steps, given as kinds with their numbers."""
    return reduce(lambda one, other: one.compose(other), (_steps_loss(kind, steps) for kind, steps in sampled))


def gaussian_loss(noise_multiplier: float) -> PrivacyLossDistribution:
    """Return the distribution of one Gaussian release."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(noise_multiplier, value_discretization_interval=INTERVAL)


@lru_cache(maxsize=8)
def _steps_loss(kind: SampledKind, steps: int) -> PrivacyLossDistribution:
    return step_loss(kind).self_compose(steps)


@lru_cache(maxsize=32)
def step_loss(kind: SampledKind) -> PrivacyLossDistribution:
    """Return the distribution of one sampled step, both when a unit is removed and when one is added.

    The same as dp-accounting's `from_gaussian_mechanism`, which finds the cut of each grid point in a Python loop:
    here all are found at once, several times faster.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType

    return PrivacyLossDistribution(_step_mass(kind, AdjacencyType.REMOVE), _step_mass(kind, AdjacencyType.ADD))


def _step_mass(kind: SampledKind, direction: object) -> PLDPmf:
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    loss = GaussianPrivacyLoss(kind.noise_multiplier, sampling_prob=kind.sampling_probability, adjacency_type=direction)
    bounds = loss.connect_dots_bounds()
    first, last = math.floor(bounds.epsilon_lower / INTERVAL), math.ceil(bounds.epsilon_upper / INTERVAL)
    epsilons = np.arange(first, last + 1) * INTERVAL
    profile = _profile_removing if direction == AdjacencyType.REMOVE else _profile_adding
    return create_pmf_pessimistic_connect_dots_fixed_gap(INTERVAL, first, last, profile(loss, kind, epsilons))


def _profile_removing(
    loss: GaussianPrivacyLoss, kind: SampledKind, epsilons: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return delta at each epsilon for (1 - q) N(0, s^2) + q N(-1, s^2) against N(0, s^2)."""
    deltas = -np.expm1(np.minimum(epsilons, 0.0))
    inside = epsilons > math.log1p(-kind.sampling_probability)
    unsampled = _unsampled(epsilons[inside], kind.sampling_probability)
    deltas[inside] = _profile(loss, epsilons[inside], -0.5 - unsampled * kind.noise_multiplier**2)
    return deltas


def _profile_adding(loss: GaussianPrivacyLoss, kind: SampledKind, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return delta at each epsilon for N(0, s^2) against (1 - q) N(0, s^2) + q N(1, s^2)."""
    deltas = np.zeros_like(epsilons)
    inside = epsilons < -math.log1p(-kind.sampling_probability)
    unsampled = -_unsampled(-epsilons[inside], kind.sampling_probability)
    deltas[inside] = _profile(loss, epsilons[inside], 0.5 - unsampled * kind.noise_multiplier**2)
    return deltas


def _profile(
    loss: GaussianPrivacyLoss, epsilons: NDArray[np.float64], cuts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P(x <= cut) - exp(epsilon) Q(x <= cut), where the loss is at least epsilon exactly for x <= cut."""
    below = np.exp(epsilons + loss.mu_lower_log_cdf(cuts))
    deltas: NDArray[np.float64] = np.clip(loss.mu_upper_cdf(cuts) - below, 0.0, 1.0)
    return deltas


def _unsampled(losses: NDArray[np.float64], probability: float) -> NDArray[np.float64]:
    """Return log(1 + (exp(loss) - 1) / probability), the loss without sampling, for losses above log(1 - q)."""
    small = np.log1p(np.expm1(np.minimum(losses, _LARGE_LOSS)) / probability)
    large = losses - math.log(probability) + np.log1p(-(1 - probability) * np.exp(-np.maximum(losses, _LARGE_LOSS)))
    return np.where(losses < _LARGE_LOSS, small, large)
