"""The distribution of production noise: limits that ideal noise breaks with a probability below 1e-9 in all."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from client_app.noise.box_muller import BoxMullerBlock
from client_app.noise.cryptographic import CryptographicNoise
from client_app.noise.keystream import Keystream
from deploy.experiments.privacy_noise import measure_distribution, noise_cells

COUNT, STDDEV = 1_000_000, 3.0
# Each of fewer than 30 checks below fails for ideal noise with at most this probability.
RISK = 2e-11
# Two-sided risk 3e-12 for a normal; for the sums here, whose skewness is below 0.011 at 10^6 draws, below 1e-11.
LIMIT_Z = 7.0


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    return CryptographicNoise().normal((COUNT,), STDDEV, device=torch.device("cpu")).double().numpy() / STDDEV


def kolmogorov_limit(count: int) -> float:
    """The distance that Massart's inequality gives the probability `RISK`."""
    return math.sqrt(math.log(2 / RISK) / (2 * count))


def test_mean_is_zero(draws: np.ndarray) -> None:
    assert abs(draws.sum() / math.sqrt(COUNT)) < stats.norm.isf(RISK / 2)


def test_sum_of_squares_is_chi_squared(draws: np.ndarray) -> None:
    assert stats.chi2.ppf(RISK / 2, COUNT) < np.square(draws).sum() < stats.chi2.isf(RISK / 2, COUNT)


@pytest.mark.parametrize(("power", "mean", "variance"), [(3, 0, 15), (4, 3, 96)])
def test_third_and_fourth_moment_are_normal(draws: np.ndarray, power: int, mean: float, variance: float) -> None:
    assert abs(np.mean(draws**power) - mean) < LIMIT_Z * math.sqrt(variance / COUNT)


def test_distribution_function_is_normal(draws: np.ndarray) -> None:
    assert stats.kstest(draws, "norm").statistic < kolmogorov_limit(COUNT)


@pytest.mark.parametrize("limit", [1.0, 2.0, 3.0, 4.0, 4.5, 5.0])
@pytest.mark.parametrize("side", [-1, 1])
def test_tails_hold_as_many_draws_as_a_normal(draws: np.ndarray, limit: float, side: int) -> None:
    tail = stats.binom(COUNT, stats.norm.sf(limit))

    assert tail.ppf(RISK / 2) <= np.sum(side * draws > limit) <= tail.isf(RISK / 2)


@pytest.mark.parametrize("lag", [1, 2, 3, 16129, 16130, 32260])
def test_draws_are_not_correlated_with_later_ones(draws: np.ndarray, lag: int) -> None:
    earlier, later = draws[:-lag], draws[lag:]

    assert abs(np.dot(earlier, later)) < LIMIT_Z * math.sqrt(len(earlier))


def test_both_samples_of_a_column_are_independent() -> None:
    block = BoxMullerBlock(500_000)
    Keystream().fill(block.words)
    first, second = (half.numpy() for half in block.combine(1.0))

    distance, angle = np.square(first) + np.square(second), np.arctan2(first, second)

    # Independence in the ways that shared radii or angles would break: squares, and the plane as a whole.
    assert abs(np.dot(first, second)) < LIMIT_Z * math.sqrt(len(first))
    assert abs(np.dot(np.square(first) - 1, np.square(second) - 1)) < LIMIT_Z * 2 * math.sqrt(len(first))
    assert stats.kstest(distance, stats.chi2(2).cdf).statistic < kolmogorov_limit(len(first))
    assert stats.kstest(angle, stats.uniform(-math.pi, 2 * math.pi).cdf).statistic < kolmogorov_limit(len(first))


def test_uniform_numbers_are_uniform() -> None:
    numbers = CryptographicNoise().uniform(COUNT).numpy()

    lowest_bits = (numbers * 2**53).astype(np.int64) & 1

    assert stats.kstest(numbers, "uniform").statistic < kolmogorov_limit(COUNT)
    assert abs(np.dot(numbers[:-1] - 0.5, numbers[1:] - 0.5)) < LIMIT_Z * math.sqrt(COUNT) / 12
    assert abs(lowest_bits.sum() - COUNT / 2) < LIMIT_Z * math.sqrt(COUNT) / 2


@pytest.mark.slow
def test_a_hundred_million_draws_are_independent_normals(tmp_path: Path) -> None:
    settings = next(cell.settings for cell in noise_cells() if cell.name == "noise-distribution")

    found = measure_distribution(settings, tmp_path)

    count = found["draws"]
    assert count >= 10**8
    assert found["largest_z"] < LIMIT_Z
    assert found["distribution"]["largest_distance"] < kolmogorov_limit(count)
    assert 5.2 < found["largest_magnitude"] < 9  # one of 10^8 normals: below 5.2 with e^-19, beyond 9 with 2e-11
    for limit, tail in found["tails"].items():
        exact = stats.binom(count, 2 * stats.norm.sf(float(limit)))
        assert exact.ppf(RISK / 2) <= tail["count"] <= exact.isf(RISK / 2)
