"""The share of images that lie alone in their bin is what counting all cases gives, and what throwing them gives."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from federation.occupancy import (
    automatic_size,
    crowded_verbatim_share,
    expected_verbatim_share,
    largest_verbatim_share,
    smallest_size,
)

thorough = settings(max_examples=60, deadline=None)


def exact_share(real: int, synthetic: int, capacity: int) -> Fraction:
    return Fraction(capacity - 1, capacity) ** (real + synthetic - 1)


def share_by_enumeration(real: int, synthetic: int, capacity: int) -> Fraction:
    """Return the mean share of real images alone in their bin over all ways to put all images into bins."""
    ways = list(product(range(capacity), repeat=real + synthetic))
    alone = sum(way.count(place) == 1 for way in ways for place in way[:real])
    return Fraction(alone, real * len(ways))


@pytest.mark.parametrize(("real", "synthetic"), [(1, 0), (1, 1), (1, 3), (2, 0), (2, 2), (3, 1), (4, 0)])
@pytest.mark.parametrize("capacity", [2, 3, 5])
def test_share_is_the_mean_over_all_ways_to_fill_the_bins(real: int, synthetic: int, capacity: int) -> None:
    expected = share_by_enumeration(real, synthetic, capacity)

    assert expected_verbatim_share(real, synthetic, capacity) == pytest.approx(float(expected), rel=1e-12)


@thorough
@given(real=st.integers(1, 500), synthetic=st.integers(0, 500), capacity=st.integers(2, 10**8))
def test_share_agrees_with_exact_arithmetic(real: int, synthetic: int, capacity: int) -> None:
    expected = float(exact_share(real, synthetic, capacity))

    assert expected_verbatim_share(real, synthetic, capacity) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("real", "synthetic", "capacity"), [(20, 0, 64), (20, 30, 64), (5, 100, 64), (64, 64, 256)])
def test_share_agrees_with_throwing_images_into_bins(real: int, synthetic: int, capacity: int) -> None:
    throws = np.random.default_rng(0).integers(capacity, size=(4000, real + synthetic))
    counts = np.stack([np.bincount(throw, minlength=capacity) for throw in throws])

    alone = (np.take_along_axis(counts, throws[:, :real], axis=1) == 1).mean(axis=1)

    error = alone.std() / len(throws) ** 0.5
    assert abs(expected_verbatim_share(real, synthetic, capacity) - alone.mean()) < 6 * error


@pytest.mark.parametrize(("real", "synthetic", "capacity"), [(5, 95, 20), (20, 180, 64)])
def test_share_of_crowded_bins_agrees_with_throwing_images_into_them(real: int, synthetic: int, capacity: int) -> None:
    images = real + synthetic
    masses = np.array([1 / images] * (capacity - 2) + [(1 - (capacity - 2) / images) / 2] * 2)
    throws = np.random.default_rng(0).choice(capacity, size=(4000, images), p=masses)
    counts = np.stack([np.bincount(throw, minlength=capacity) for throw in throws])

    alone = (np.take_along_axis(counts, throws[:, :real], axis=1) == 1).mean(axis=1)

    error = alone.std() / len(throws) ** 0.5
    assert abs(crowded_verbatim_share(real, synthetic, capacity) - alone.mean()) < 6 * error + 1e-3


def test_crowded_bins_read_more_than_equal_ones_once_there_are_far_more_images_than_bins() -> None:
    assert crowded_verbatim_share(64, 6071, 1024) > 0.06 > 0.01 > expected_verbatim_share(64, 6071, 1024)
    assert crowded_verbatim_share(64, 1472, 1024) > expected_verbatim_share(64, 1472, 1024)
    with pytest.raises(ValueError, match="capacity=1024"):
        crowded_verbatim_share(64, 512, 1024)


def test_single_image_always_lies_alone() -> None:
    assert expected_verbatim_share(1, 0, 2) == 1.0


def test_share_of_a_huge_layer_is_not_rounded_away() -> None:
    # (1 - 1/k)^k tends to 1/e; 1 - 1/k alone has lost four digits here.
    assert expected_verbatim_share(10**12, 1, 10**12) == pytest.approx(math.exp(-1), rel=1e-9)


def is_smallest(size: int, real: int, capacity: int, target: float) -> bool:
    """Return whether no smaller size will do, exactly but for a part in 10^12 of the target."""
    slack = Fraction(1, 10**12)
    enough = exact_share(real, size, capacity) <= Fraction(target) * (1 + slack)
    return enough and (size == 1 or exact_share(real, size - 1, capacity) > Fraction(target) * (1 - slack))


@thorough
@given(real=st.integers(1, 400), capacity=st.integers(2, 300), target=st.floats(0.001, 0.999))
def test_smallest_size_is_enough_and_one_less_is_not(real: int, capacity: int, target: float) -> None:
    size = smallest_size(real, capacity, target)

    assert size >= 1
    assert is_smallest(size, real, capacity, target)


@thorough
@given(real=st.integers(1, 10**5), capacity=st.integers(2, 10**8), target=st.floats(1e-9, 1 - 1e-9))
def test_smallest_size_is_smallest_for_the_share_that_is_reported(real: int, capacity: int, target: float) -> None:
    size = smallest_size(real, capacity, target)

    assert expected_verbatim_share(real, size, capacity) <= target
    assert size == 1 or expected_verbatim_share(real, size - 1, capacity) > target


@thorough
@given(real=st.integers(1, 500), size=st.integers(1, 5000), capacity=st.integers(2, 10**6))
def test_size_of_a_share_that_is_met_exactly_is_not_one_too_many(real: int, size: int, capacity: int) -> None:
    target = expected_verbatim_share(real, size, capacity)

    assume(1e-300 < target < 1)

    assert smallest_size(real, capacity, target) == size


@thorough
@given(real=st.integers(1, 5000), synthetic=st.integers(0, 5000), capacity=st.integers(2, 4096))
def test_largest_share_is_that_of_the_better_bins(real: int, synthetic: int, capacity: int) -> None:
    equal = expected_verbatim_share(real, synthetic, capacity)
    uneven = crowded_verbatim_share(real, synthetic, capacity) if capacity <= real + synthetic else 0.0

    assert largest_verbatim_share(real, synthetic, capacity) == max(equal, uneven)


def test_largest_share_at_the_defaults_is_what_documentation_says() -> None:
    assert largest_verbatim_share(64, 2048, 1024) == pytest.approx(0.178, abs=0.001)
    assert largest_verbatim_share(64, 3004, 1024) == pytest.approx(0.123, abs=0.001)


@pytest.mark.parametrize(("real", "steps", "size"), [(64, 1, 3004), (5000, 79, 79), (5000, 1, 1), (3000, 47, 68)])
def test_automatic_size_has_an_image_for_every_step(real: int, steps: int, size: int) -> None:
    assert automatic_size(real, 1024, 0.05, steps=steps) == size


@pytest.mark.parametrize("real", [1, 64, 500, 3066])
def test_smallest_size_for_the_defaults_fills_up_to_3068_images(real: int) -> None:
    assert smallest_size(real, 1024, 0.05) == 3068 - real
    assert exact_share(real, 3068 - real, 1024) <= Fraction(1, 20) < exact_share(real, 3067 - real, 1024)


@pytest.mark.parametrize("real", [3067, 3068, 100_000])
def test_one_synthetic_image_is_the_least_when_the_real_ones_are_enough(real: int) -> None:
    assert smallest_size(real, 1024, 0.05) == 1


@pytest.mark.parametrize(
    ("real", "synthetic", "capacity", "named"),
    [(0, 1, 4, "real=0"), (-3, 1, 4, "real=-3"), (1, -1, 4, "synthetic=-1"), (1, 1, 1, "capacity=1")],
)
def test_share_of_impossible_numbers_is_refused(real: int, synthetic: int, capacity: int, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named} >= "):
        expected_verbatim_share(real, synthetic, capacity)


@pytest.mark.parametrize(
    ("real", "capacity", "target", "named"),
    [
        (0, 4, 0.5, "real=0 >= 1"),
        (1, 1, 0.5, "capacity=1 >= 2"),
        (1, 4, 0.0, "target=0.0 < 1"),
        (1, 4, 1.0, "target=1.0 < 1"),
        (1, 4, -0.1, "target=-0.1 < 1"),
        (1, 4, float("nan"), "target=nan < 1"),
    ],
)
def test_size_for_impossible_numbers_is_refused(real: int, capacity: int, target: float, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        smallest_size(real, capacity, target)
