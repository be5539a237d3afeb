"""Intervals solve the equations that define them, and agree with published values and with counting."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from aegis_cache.audit import shares
from attacks.metrics.intervals import Share, check_binomial, check_occupancy, wilson_interval

thorough = settings(max_examples=60, deadline=None)
counts = st.integers(1, 2000).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count)))


@thorough
@given(found=counts, confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_bounds_are_the_shares_whose_score_is_just_not_rejected(
    found: tuple[int, int], confidence: float
) -> None:
    hits, count = found
    z = NormalDist().inv_cdf(0.5 + confidence / 2)

    bounds = wilson_interval(hits, count, confidence=confidence)

    # (hits/n - p)^2 = z^2 p (1 - p) / n, by its definition; both bounds are roots of it.
    for bound in bounds:
        assert count * (hits / count - bound) ** 2 == pytest.approx(z**2 * bound * (1 - bound), rel=1e-6, abs=1e-9)
    assert bounds[0] <= hits / count <= bounds[1]
    assert bounds[0] < bounds[1]


@thorough
@given(found=counts)
def test_default_is_the_95_percent_interval_of_scipy_and_of_the_audit(found: tuple[int, int]) -> None:
    hits, count = found

    bounds = wilson_interval(hits, count)

    assert bounds == pytest.approx(tuple(binomtest(hits, count).proportion_ci(0.95, method="wilson")), abs=1e-12)
    assert bounds == pytest.approx(shares.wilson_interval(hits, count), abs=1e-12)


@pytest.mark.parametrize(("hits", "low", "high"), [(57, 79, 95), (6, 4.4, 19)])
def test_one_batch_of_64_says_little(hits: int, low: float, high: float) -> None:
    bounds = wilson_interval(hits, 64)

    assert [100 * bound for bound in bounds] == pytest.approx([low, high], abs=0.5)


@pytest.mark.parametrize(("hits", "count", "confidence"), [(-1, 3, 0.95), (4, 3, 0.95), (0, 0, 0.95), (1, 3, 1.0)])
def test_wilson_refuses_what_is_no_share(hits: int, count: int, confidence: float) -> None:
    with pytest.raises(ValueError, match=f"hits={hits} <= count={count}"):
        wilson_interval(hits, count, confidence=confidence)


def test_share_carries_its_interval() -> None:
    share = Share.of(3, 12)

    assert (share.hits, share.count, share.share) == (3, 12, 0.25)
    assert (share.low, share.high) == wilson_interval(3, 12)


def test_share_of_nothing_is_unknown() -> None:
    assert Share.of(0, 0) == Share(hits=0, count=0, share=None, low=0.0, high=1.0)


def test_share_refuses_hits_of_nothing() -> None:
    with pytest.raises(ValueError, match="hits=1 <= count=0"):
        Share.of(1, 0)


def tail(trials: int, probability: float, wanted: range) -> float:
    """Return the probability that Binomial(trials, probability) lies in `wanted`, by its formula."""
    return sum(math.comb(trials, x) * probability**x * (1 - probability) ** (trials - x) for x in wanted)


@thorough
@given(trials=st.integers(1, 60), probability=st.floats(0.01, 0.99), central=st.sampled_from([0.5, 0.9, 0.99]))
def test_interval_leaves_at_most_half_of_the_rest_outside_on_each_side(
    trials: int, probability: float, central: float
) -> None:
    check = check_binomial(0, trials, probability, central=central)

    rest = (1 - central) / 2
    assert tail(trials, probability, range(check.low)) <= rest + 1e-9
    assert tail(trials, probability, range(check.high + 1, trials + 1)) <= rest + 1e-9
    # Neither end can move inwards.
    assert tail(trials, probability, range(check.low + 1)) >= rest - 1e-9
    assert tail(trials, probability, range(check.high, trials + 1)) >= rest - 1e-9


def test_count_passes_at_the_ends_of_the_interval_and_not_beyond() -> None:
    check = check_binomial(0, 100, 0.5)

    passed = [count for count in range(101) if check_binomial(count, 100, 0.5).passed]

    assert passed == list(range(check.low, check.high + 1))
    assert (check.low, check.high) == (37, 63)


@pytest.mark.parametrize(("probability", "only"), [(0.0, 0), (1.0, 7)])
def test_certain_counts_pass_alone(probability: float, only: int) -> None:
    assert [count for count in range(8) if check_binomial(count, 7, probability).passed] == [only]


@pytest.mark.parametrize(
    ("count", "trials", "probability", "central", "words"),
    [
        (3, 2, 0.5, 0.99, "count=3 <= trials=2"),
        (-1, 2, 0.5, 0.99, "count=-1"),
        (0, 0, 0.5, 0.99, "trials=0 >= 1"),
        (1, 2, 1.5, 0.99, "probability=1.5"),
        (1, 2, math.nan, 0.99, "probability=nan"),
        (1, 2, 0.5, 1.0, "central=1.0"),
    ],
)
def test_check_refuses_impossible_numbers(
    count: int, trials: int, probability: float, central: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        check_binomial(count, trials, probability, central=central)


def test_self_test_passes_for_thrown_images_and_fails_for_another_number_of_synthetic_images() -> None:
    throws = np.random.default_rng(0).integers(256, size=(50, 16 + 100))
    alone = sum(int((np.bincount(throw, minlength=256)[throw[:16]] == 1).sum()) for throw in throws)

    check = check_occupancy(alone, batches=50, real=16, synthetic=100, capacity=256)

    assert check.probability == pytest.approx((1 - 1 / 256) ** 115, rel=1e-12)
    assert check.trials == 800
    assert check.passed
    assert not check_occupancy(alone, batches=50, real=16, synthetic=0, capacity=256).passed
