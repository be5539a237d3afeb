"""The noise experiment: statistics against scipy, bad noise recognised, claims complete."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from deploy.experiments.privacy_noise import (
    describe_draws,
    measure_distribution,
    measure_speed,
    noise_cells,
    noise_claims,
)

CELLS = {cell.name: cell for cell in noise_cells()}
LIMIT_Z, LIMIT_PROBABILITY = 7.0, 1e-9


def describe(draws: np.ndarray, bins: int = 256):
    return describe_draws(iter(torch.from_numpy(draws.astype(np.float32)).chunk(4)), lags=[1, 3], bins=bins)


@pytest.fixture(scope="module")
def good() -> np.ndarray:
    return np.random.default_rng(11).standard_normal(400_000)


def test_moments_and_their_scores_are_those_of_the_library(good: np.ndarray) -> None:
    found = describe(good)["moments"]

    for power, spread in ((1, 1), (2, 2), (3, 15), (4, 96)):
        value = np.mean(good**power)
        assert found[str(power)]["value"] == pytest.approx(value, abs=1e-5)
        ideal = stats.norm.moment(power)
        assert found[str(power)]["z"] == pytest.approx((value - ideal) / np.sqrt(spread / good.size), abs=5e-3)


def test_serial_correlation_is_that_of_the_library(good: np.ndarray) -> None:
    found = describe_draws(iter([torch.from_numpy(good.astype(np.float32))]), lags=[1, 3], bins=16)

    for lag in (1, 3):
        assert found["serial"][str(lag)]["value"] == pytest.approx(np.mean(good[:-lag] * good[lag:]), abs=1e-6)
        squares = good**2 - 1
        z = np.sum(squares[:-lag] * squares[lag:]) / np.sqrt(4 * (good.size - lag))
        assert found["serial_squares"][str(lag)]["z"] == pytest.approx(z, abs=1e-3)


def test_distance_and_chi_squared_are_those_of_the_library(good: np.ndarray) -> None:
    found = describe(good, bins=4096)["distribution"]

    kolmogorov = stats.kstest(good, "norm").statistic
    edges = stats.norm.ppf(np.linspace(0, 1, 4097))
    chi_squared = stats.chisquare(np.histogram(good, edges)[0]).statistic
    assert kolmogorov - 1 / 4096 <= found["largest_distance"] <= kolmogorov
    assert found["chi_squared"] == pytest.approx(chi_squared, rel=1e-3)


@pytest.mark.parametrize("limit", ["4.0", "5.0", "5.5"])
def test_bound_on_a_tail_count_is_above_its_exact_probability(limit: str) -> None:
    draws = np.zeros(100_000)
    draws[:30] = 4.5
    draws[:3] = 6.0

    found = describe(draws)["tails"][limit]

    probability = 2 * stats.norm.sf(float(limit))
    assert found["expected"] == pytest.approx(100_000 * probability)
    assert found["count"] == (30 if limit == "4.0" else 3)
    assert found["probability_bound"] >= stats.binom.sf(found["count"] - 1, 100_000, probability)


def test_good_noise_is_within_every_limit(good: np.ndarray) -> None:
    found = describe(good)

    assert found["largest_z"] < LIMIT_Z
    assert found["least_probability"] > LIMIT_PROBABILITY
    assert found["draws"] == good.size


@pytest.mark.parametrize(
    "spoil",
    [lambda x: x * 1.02, lambda x: x + 0.02, np.abs, lambda x: np.clip(x, -3, 3), lambda x: np.repeat(x, 2),
     lambda x: np.round(x, 1), lambda x: np.sign(x) * np.abs(np.roll(x, 1)) ** 0.5 * np.abs(x) ** 0.5,
     lambda x: stats.norm.ppf(stats.t.cdf(x * 1.2, 6))],
    ids=["wide", "shifted", "positive", "clipped", "repeated", "coarse", "dependent", "bent"],
)  # fmt: skip
def test_spoiled_noise_is_outside_some_limit(good: np.ndarray, spoil) -> None:
    found = describe(spoil(good))

    assert found["largest_z"] > LIMIT_Z or found["least_probability"] < LIMIT_PROBABILITY


def test_both_cells_compute_what_the_claims_read(tmp_path: Path) -> None:
    settings = {**CELLS["noise-distribution"].settings, "draws": 50_000, "chunk": 20_000}

    results = {
        "noise-speed": measure_speed({"sizes": [1_000, 1_670_000], "repetitions": 1}, tmp_path),
        "noise-distribution": measure_distribution(settings, tmp_path),
    }

    item = noise_claims(json.loads(json.dumps(results)))[0]
    assert results["noise-distribution"]["draws"] == 50_000
    assert item.value == results["noise-speed"]["sizes"]["1670000"]["median_ratio"] > 0
    assert (item.id, item.target, item.command) == ("noise_speed_ratio", ">= 0.5", "aegis experiment privacy")
    assert "1,000 samples" in item.note


def test_ratio_above_one_means_faster_than_numpy(tmp_path: Path) -> None:
    found = measure_speed({"sizes": [100_000], "repetitions": 1}, tmp_path)["sizes"]["100000"]

    speeds = found["samples_per_s"]
    assert found["median_ratio"] == pytest.approx(speeds["ours"] / speeds["numpy"])
    assert found["median_generator_ratio"] == pytest.approx(speeds["ours"] / speeds["generator"])


def test_claim_without_results_has_no_value() -> None:
    assert [item.value for item in noise_claims({})] == [None]


def test_speed_is_measured_alone_and_often_enough() -> None:
    assert CELLS["noise-speed"].alone
    assert not CELLS["noise-distribution"].alone
    assert CELLS["noise-speed"].settings["repetitions"] >= 7
    assert CELLS["noise-distribution"].settings["draws"] >= 10**8
