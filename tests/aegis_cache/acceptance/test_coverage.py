"""How synthetic images cover what real ones fill, against scipy, closed forms and planted shifts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ks_2samp

from aegis_cache.acceptance.coverage import (
    brightness,
    expected_protection,
    ks_allowance,
    ks_distance,
    measure_coverage,
    robust_overlap,
)

VALUES = arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1, width=16))


def draw(count: int, seed: int, shift: float = 0.0) -> np.ndarray:
    """Images whose mean brightness is about normal around 120 + shift grey levels."""
    stream = np.random.default_rng(seed)
    level = stream.normal(120 + shift, 20, size=(count, 1, 1, 1))
    return np.clip(level + stream.normal(0, 30, size=(count, 1, 8, 8)), 0, 255).astype(np.uint8)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scipy, of a p-value of equal samples.
@given(VALUES, VALUES)
def test_ks_distance_agrees_with_scipy(left: np.ndarray, right: np.ndarray) -> None:
    assert ks_distance(left, right) == pytest.approx(ks_2samp(left, right, method="asymp").statistic, abs=1e-12)


def test_allowance_is_exceeded_by_about_one_in_a_hundred_pairs_of_one_distribution() -> None:
    stream = np.random.default_rng(0)
    pairs = [(stream.normal(size=200), stream.normal(size=300)) for _ in range(2000)]

    exceeding = np.mean([ks_distance(*pair) > ks_allowance(200, 300) for pair in pairs])

    assert exceeding < 0.012


def test_images_of_the_same_distribution_reach_what_resampled_ones_reach() -> None:
    coverage = measure_coverage(draw(2000, 1), draw(4000, 2))

    assert robust_overlap(draw(2000, 1), draw(4000, 2)) == pytest.approx(1, abs=0.05)
    assert coverage.brightness_ks < ks_allowance(2000, 4000)
    assert coverage.projection_ks < 2 * ks_allowance(2000, 4000)


def test_brighter_images_are_seen_in_every_measure_of_brightness() -> None:
    coverage = measure_coverage(draw(2000, 1, shift=25), draw(4000, 2))

    assert coverage.brightness_ks > 0.3
    assert coverage.occupancy_overlap < 0.75
    assert robust_overlap(draw(2000, 1, shift=25), draw(4000, 2)) < 0.75


@pytest.mark.parametrize("count", [60, 300, 4000])
def test_fresh_images_of_a_small_hospital_pass_the_default_bound(count: int) -> None:
    assert robust_overlap(draw(2048, 1), draw(count, 2)) > 0.85


def test_the_real_images_themselves_overlap_completely_and_protect_all() -> None:
    real = draw(1500, 3)

    coverage = measure_coverage(real, real)

    assert coverage.overlap == pytest.approx(1)
    assert coverage.protected == 1
    assert coverage.brightness_ks == 0


def test_protected_counts_the_real_images_in_bins_that_are_hit() -> None:
    levels = np.arange(100, dtype=np.uint8).repeat(4).reshape(100, 1, 2, 2)

    coverage = measure_coverage(levels[:25], levels, bins=4)

    assert coverage.protected == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(("images", "share"), [(1, 1 / 1024), (1024, 0.632), (2048, 0.865)])
def test_expected_protection_is_the_chance_to_hit_a_bin(images: int, share: float) -> None:
    assert expected_protection(images) == pytest.approx(share, abs=0.001)


def test_brightness_is_the_mean_grey_level() -> None:
    images = np.array([[[[0, 255], [255, 0]]], [[[255, 255], [255, 255]]]], dtype=np.uint8)

    assert brightness(images).tolist() == [0.5, 1.0]
