"""Each factor against its closed form, its range, its direction, and 1 where nothing is to be weighed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from federation.config import AggregationConfig
from server_app.aggregation.weights import (
    anomaly_factor,
    balance_factor,
    direction_factor,
    noise_factor,
    shift_factor,
    size_factor,
    staleness_factor,
)

STALENESS_FUNCTIONS = get_args(AggregationConfig.model_fields["staleness"].annotation)
NORMS = st.lists(st.floats(0, 1e6), min_size=8, max_size=60)
# Median 5.5; the deviations from it are 0.5 to 4.5, twice each, and their median is 2.5.
ONE_TO_TEN = [float(number) for number in range(1, 11)]


def settings_of(**settings: object) -> AggregationConfig:
    return AggregationConfig.model_validate(settings)


staleness_settings = st.builds(
    settings_of,
    staleness=st.sampled_from(STALENESS_FUNCTIONS),
    staleness_alpha=st.floats(0, 1, exclude_min=True),
    staleness_exponent=st.floats(0, 10),
    staleness_slope=st.floats(0, 1e6),
    staleness_grace=st.integers(0, 50),
)


@given(st.integers(1, 10**9))
def test_factor_is_the_number_of_images_its_root_or_one(examples: int) -> None:
    assert size_factor(examples, "examples") == examples
    assert size_factor(examples, "sqrt") == math.sqrt(examples)
    assert size_factor(examples, "uniform") == 1.0


@pytest.mark.parametrize("weighting", get_args(AggregationConfig.model_fields["weighting"].annotation))
def test_every_weighting_that_can_be_configured_has_a_factor(weighting: str) -> None:
    assert size_factor(4, weighting) > 0


@pytest.mark.parametrize(("weighting", "share"), [("examples", 0.0079), ("sqrt", 0.0821), ("uniform", 0.5)])
def test_share_of_800_images_beside_100_000(weighting: str, share: float) -> None:
    small, large = size_factor(800, weighting), size_factor(100_000, weighting)

    assert small / (small + large) == pytest.approx(share, abs=5e-5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"staleness": "constant", "staleness_alpha": 0.5}, {0: 1, 1: 1, 7: 1}),
        ({"staleness": "exponential", "staleness_alpha": 0.5}, {0: 1, 1: 0.5, 3: 0.125}),
        ({"staleness": "exponential", "staleness_alpha": 1.0}, {0: 1, 20: 1}),
        ({"staleness": "polynomial", "staleness_exponent": 0.5}, {0: 1, 3: 0.5, 8: 1 / 3}),
        ({"staleness": "polynomial", "staleness_exponent": 2.0}, {1: 0.25, 3: 0.0625}),
        ({"staleness": "polynomial", "staleness_exponent": 0.0}, {0: 1, 20: 1}),
        ({"staleness": "hinge", "staleness_slope": 10.0, "staleness_grace": 4}, {0: 1, 4: 1, 5: 1 / 11, 6: 1 / 21}),
        ({"staleness": "hinge", "staleness_slope": 0.0, "staleness_grace": 0}, {0: 1, 20: 1}),
    ],
)
def test_staleness_factor_is_its_formula(settings: dict[str, object], expected: dict[int, float]) -> None:
    found = {staleness: staleness_factor(staleness, settings_of(**settings)) for staleness in expected}

    assert found == pytest.approx(expected)


@given(staleness_settings)
def test_fresh_update_has_staleness_factor_one(settings: AggregationConfig) -> None:
    assert staleness_factor(0, settings) == 1.0


@given(staleness_settings, st.integers(0, 10_000), st.integers(1, 10_000))
def test_older_update_never_has_the_larger_staleness_factor(
    settings: AggregationConfig, staleness: int, more: int
) -> None:
    younger, older = staleness_factor(staleness, settings), staleness_factor(staleness + more, settings)

    assert 0 <= older <= younger <= 1


@pytest.mark.parametrize("staleness", [name for name in STALENESS_FUNCTIONS if name != "constant"])
def test_every_staleness_that_can_be_configured_decays_unless_it_is_constant(staleness: str) -> None:
    assert staleness_factor(20, settings_of(staleness=staleness)) < 1


def test_noise_factor_is_the_least_variance_over_ones_own() -> None:
    assert noise_factor(8.0, 2.0) == 0.25
    assert noise_factor(2.0, 2.0) == 1.0


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_noise_factor_is_one_without_noise_or_nothing_to_compare_with(variance: float, least: float) -> None:
    assert noise_factor(0.0, least) == 1.0
    assert noise_factor(variance, 0.0) == 1.0


@given(st.floats(1e-9, 1e9), st.floats(1, 1e6), st.floats(1, 1e6))
def test_noisier_update_never_has_the_larger_noise_factor(least: float, times: float, more: float) -> None:
    quieter, noisier = noise_factor(least * times, least), noise_factor(least * times * more, least)

    assert 0 < noisier <= quieter <= 1


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=6))
def test_noise_factors_give_the_mean_of_least_variance(variances: list[float]) -> None:
    factors = [noise_factor(variance, min(variances)) for variance in variances]

    # The smallest possible variance of an unbiased weighted mean is 1 / sum(1 / variance).
    shares = [factor / sum(factors) for factor in factors]
    found = sum(share**2 * variance for share, variance in zip(shares, variances, strict=True))
    assert found == pytest.approx(1 / sum(1 / variance for variance in variances))


@pytest.mark.parametrize(("shift", "factor"), [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0)])
def test_shift_factor_is_what_remains_to_one(shift: float, factor: float) -> None:
    assert shift_factor(shift) == factor


def test_anomaly_factor_is_the_threshold_over_the_robust_z_score() -> None:
    z = (100.0 - 5.5) / (1.4826 * 2.5)

    assert anomaly_factor(100.0, ONE_TO_TEN, 3.5) == pytest.approx(3.5 / z)


def test_norm_at_the_threshold_is_normal_and_one_above_is_not() -> None:
    limit = 5.5 + 3.5 * 1.4826 * 2.5

    assert anomaly_factor(limit * (1 - 1e-12), ONE_TO_TEN, 3.5) == 1.0
    assert 0.99 < anomaly_factor(limit * 1.001, ONE_TO_TEN, 3.5) < 1.0


@given(NORMS, st.floats(0.5, 10), st.floats(0, 1e6), st.floats(0, 1e6))
def test_larger_norm_never_has_the_larger_anomaly_factor(
    norms: list[float], threshold: float, norm: float, more: float
) -> None:
    smaller, larger = anomaly_factor(norm, norms, threshold), anomaly_factor(norm + more, norms, threshold)

    assert 0 <= larger <= smaller <= 1


@given(NORMS, st.floats(0.5, 10), st.floats(0, 1e9))
def test_suspected_update_moves_the_model_no_farther_than_one_at_the_threshold(
    norms: list[float], threshold: float, norm: float
) -> None:
    median = statistics.median(norms)
    assume(median > 0)
    deviation = 1.4826 * max(statistics.median(abs(other - median) for other in norms), 0.02 * median)

    moved = norm * anomaly_factor(norm, norms, threshold)

    assert moved <= (median + threshold * deviation) * (1 + 1e-9)


@given(NORMS, st.floats(0.5, 10))
def test_norm_below_the_median_is_never_an_anomaly(norms: list[float], threshold: float) -> None:
    assert anomaly_factor(0.0, norms, threshold) == 1.0
    assert anomaly_factor(statistics.median(norms), norms, threshold) == 1.0


@pytest.mark.parametrize(
    ("norm", "norms", "threshold"),
    [
        pytest.param(1e9, [1.0] * 7, 3.5, id="fewer than eight norms"),
        pytest.param(1e9, [], 3.5, id="no norms"),
        pytest.param(1e9, ONE_TO_TEN, 0.0, id="turned off"),
        pytest.param(math.inf, ONE_TO_TEN, 0.0, id="turned off, whatever the norm"),
        pytest.param(1.0, [0.0] * 20, 3.5, id="nothing has moved yet"),
        pytest.param(math.nextafter(2.0, 3.0), [2.0] * 20, 3.5, id="last bit of identical norms"),
        pytest.param(2.0 * 1.10, [2.0] * 20, 3.5, id="a tenth above identical norms"),
    ],
)
def test_anomaly_factor_is_one_where_norms_say_nothing(norm: float, norms: Sequence[float], threshold: float) -> None:
    assert anomaly_factor(norm, norms, threshold) == 1.0


def test_eight_norms_are_enough_and_identical_ones_expose_a_much_larger_one() -> None:
    # MAD 0: the floor of 2 % of the median stands in for it.
    assert anomaly_factor(4.0, [2.0] * 8, 3.5) == pytest.approx(3.5 * 1.4826 * 0.04 / 2.0)


@pytest.mark.parametrize("norm", [math.inf, math.nan])
def test_update_whose_norm_is_not_finite_weighs_nothing(norm: float) -> None:
    assert anomaly_factor(norm, ONE_TO_TEN, 3.5) == 0.0


def test_almost_half_of_the_norms_may_be_forged_without_hiding_an_anomaly() -> None:
    honest = [float(number) for number in range(100, 126)]

    assert anomaly_factor(1e6, [*honest, *[1e6] * 24], 3.5) < 0.01


@pytest.mark.parametrize(
    ("cosine", "factor"), [(1.0, 1.0), (0.0, 1.0), (-0.25, 0.75), (-1.0, 0.0), (-1.0000001, 0.0), (math.nan, 1.0)]
)
def test_direction_factor_falls_to_zero_for_the_opposite_direction(cosine: float, factor: float) -> None:
    assert direction_factor(cosine) == factor


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_update_further_against_the_last_step_never_has_the_larger_direction_factor(one: float, other: float) -> None:
    against, along = sorted([one, other])

    assert 0 <= direction_factor(against) <= direction_factor(along) <= 1


def test_balance_factor_is_the_mean_count_over_ones_own_to_the_exponent() -> None:
    counts = [1, 8, 8, 8, 11]  # mean 7.2

    assert balance_factor(1, counts, 1.0, 100.0) == pytest.approx(7.2)
    assert balance_factor(1, counts, 0.5, 100.0) == pytest.approx(math.sqrt(7.2))
    assert balance_factor(8, counts, 1.0, 100.0) == pytest.approx(0.9)
    assert balance_factor(1, counts, 1.0, 4.0) == 4.0


def test_balance_factor_of_a_frequent_hospital_stops_at_the_inverse_limit() -> None:
    assert balance_factor(80, [80, 0, 0, 0], 1.0, 2.0) == 0.5


COUNTS = st.lists(st.integers(0, 10**6), max_size=20)


@given(st.integers(1, 10**6), COUNTS, st.floats(1, 100))
def test_balance_factor_is_one_when_off_or_without_limit_to_spare(own: int, others: list[int], limit: float) -> None:
    assert balance_factor(own, [own, *others], 0.0, limit) == 1.0
    assert balance_factor(own, [own, *others], 1.0, 1.0) == 1.0
    assert balance_factor(own, [], 1.0, limit) == 1.0


@given(st.integers(1, 10**6), st.integers(1, 20), st.floats(0, 1), st.floats(1, 100))
def test_balance_factor_is_one_among_equals(own: int, hospitals: int, exponent: float, limit: float) -> None:
    assert balance_factor(own, [own] * hospitals, exponent, limit) == 1.0


@given(st.integers(1, 10**6), st.integers(0, 10**6), COUNTS, st.floats(0, 1), st.floats(1, 100))
def test_more_frequent_hospital_never_has_the_larger_balance_factor(
    own: int, more: int, others: list[int], exponent: float, limit: float
) -> None:
    counts = [own, own + more, *others]
    rare = balance_factor(own, counts, exponent, limit)
    frequent = balance_factor(own + more, counts, exponent, limit)

    assert 1 / limit <= frequent <= rare <= limit


def test_whole_balance_gives_hospitals_of_different_speed_the_same_sum_of_weights() -> None:
    counts = {"fast": 0, "slow": 0}
    sums = {"fast": 0.0, "slow": 0.0}
    for tick in range(1, 8 * 500 + 1):
        for name, period in (("fast", 1), ("slow", 8)):
            if tick % period == 0:
                counts[name] += 1
                sums[name] += balance_factor(counts[name], list(counts.values()), 1.0, 100.0)

    assert sums["slow"] == pytest.approx(sums["fast"], rel=0.01)
