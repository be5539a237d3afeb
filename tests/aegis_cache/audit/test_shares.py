"""Intervals of shares agree with published examples and with scipy, and cover what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from aegis_cache.audit.shares import Counts, count_below, excess_of, wilson_interval


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (3, 50), (10, 10), (81, 263)])
def test_interval_of_a_share_is_that_of_scipy(hits: int, count: int) -> None:
    low, high = wilson_interval(hits, count)

    expected = binomtest(hits, count).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


# Newcombe, Stat. Med. 17 (1998) 873-890, table II, method 10.
@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_interval_of_a_difference_is_the_published_one(
    ours: tuple[int, int], theirs: tuple[int, int], low: float, high: float
) -> None:
    found = excess_of([Counts(synthetic_hits=ours[0], synthetic=ours[1], held_out_hits=theirs[0], held_out=theirs[1])])

    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)
    assert found.excess == pytest.approx(ours[0] / ours[1] - theirs[0] / theirs[1])


def test_classes_count_by_their_synthetic_images_on_both_sides() -> None:
    large = Counts(synthetic_hits=30, synthetic=300, held_out_hits=1, held_out=10)
    small = Counts(synthetic_hits=50, synthetic=100, held_out_hits=500, held_out=1000)

    found = excess_of([large, small])

    assert found.synthetic_share == pytest.approx(0.2)
    assert found.held_out_share == pytest.approx(0.75 * 0.1 + 0.25 * 0.5)
    assert (found.synthetic, found.held_out) == (400, 1010)


def test_two_equal_classes_narrow_the_interval_by_the_root_of_two() -> None:
    part = Counts(synthetic_hits=20, synthetic=100, held_out_hits=5, held_out=100)

    one, two = excess_of([part]), excess_of([part, part])

    assert one.excess == pytest.approx(two.excess)
    assert (two.excess - two.low) * 2**0.5 == pytest.approx(one.excess - one.low)
    assert (two.high - two.excess) * 2**0.5 == pytest.approx(one.high - one.excess)


def test_line_is_drawn_by_the_calibration_half_alone() -> None:
    calibration = np.arange(101.0)

    counts = count_below(np.array([0.5, 2.0]), calibration, np.array([0.0, 1.0, 1.1]), quantile=0.01)

    assert counts == Counts(synthetic_hits=1, synthetic=2, held_out_hits=2, held_out=3)


def test_intervals_over_classes_cover_no_excess_as_often_as_they_promise() -> None:
    stream = np.random.default_rng(0)
    rates, sizes = np.array([0.01, 0.05, 0.2]), np.array([[100, 40], [60, 80], [50, 50]])
    covered = 0
    for _ in range(1000):
        hits = stream.binomial(sizes, rates[:, None])
        parts = [
            Counts(synthetic_hits=a, synthetic=n, held_out_hits=b, held_out=m)
            for (a, b), (n, m) in zip(hits.tolist(), sizes.tolist(), strict=True)
        ]
        found = excess_of(parts)
        covered += found.low <= 0 <= found.high

    assert 930 <= covered <= 990
