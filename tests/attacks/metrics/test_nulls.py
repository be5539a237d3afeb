"""Guesses without an update use what their name says and no more, and the threshold is a percentile of the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.metrics.images import brightness_of
from attacks.metrics.nulls import (
    calibrate_threshold_db,
    guess_best_foreign,
    guess_mean,
    guess_nearest_synthetic,
    guess_same_bin,
    guess_scaled_mean,
)
from attacks.metrics.quality import measure_psnr
from federation.errors import DataError
from tests.attacks.metrics.made_up_images import make_images

thorough = settings(max_examples=30, deadline=None)
SMALL = (1, 3, 3)


def grey(*levels: float) -> np.ndarray:
    return np.stack([np.full(SMALL, level) for level in levels])


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_mean_guess_is_the_same_mean_auxiliary_image_for_all() -> None:
    null = guess_mean(make_images(3, 0, shape=SMALL), grey(0.2, 0.3, 0.7))

    assert null.name == "mean"
    assert null.images == pytest.approx(grey(0.4, 0.4, 0.4))


@thorough
@given(seed=st.integers(0, 10**6))
def test_scaled_mean_has_the_brightness_of_each_real_image_and_the_shape_of_the_mean(seed: int) -> None:
    real, auxiliary = 0.4 * make_images(4, seed, shape=SMALL), 0.4 + 0.2 * make_images(5, seed + 1, shape=SMALL)

    null = guess_scaled_mean(real, auxiliary)

    assert null.name == "scaled-mean"
    assert brightness_of(null.images) == pytest.approx(brightness_of(real))
    ratio = null.images / auxiliary.mean(axis=0)
    assert ratio == pytest.approx(np.broadcast_to(ratio[:, :1, :1, :1], ratio.shape))


def test_scaled_mean_is_clamped_where_the_real_image_is_brighter_than_the_mean_can_be() -> None:
    auxiliary = np.zeros((1, 1, 1, 2))
    auxiliary[..., 1] = 0.5

    null = guess_scaled_mean(np.full((1, 1, 1, 2), 0.9), auxiliary)

    assert null.images.ravel().tolist() == [0.0, 1.0]


def test_scaled_mean_of_black_images_is_grey() -> None:
    assert guess_scaled_mean(grey(0.25), grey(0.0)).images == pytest.approx(grey(0.25))


def test_guess_from_the_same_bin_takes_any_image_of_it_and_none_of_another() -> None:
    edges, synthetic = np.array([0.25, 0.5, 0.75]), grey(0.1, 0.26, 0.4, 0.5, 0.51)

    guesses = [guess_same_bin(grey(0.3), synthetic, edges, stream=stream(seed)) for seed in range(40)]

    assert {null.name for null in guesses} == {"same-bin"}
    assert {float(null.images.max()) for null in guesses} == {0.26, 0.4, 0.5}


def test_guess_from_an_empty_bin_is_the_nearest_in_brightness() -> None:
    edges = np.array([0.25, 0.5, 0.75])

    null = guess_same_bin(grey(0.3, 0.9), grey(0.1, 0.6), edges, stream=stream())

    assert null.images == pytest.approx(grey(0.1, 0.6))


@pytest.mark.parametrize("edges", [np.array([0.5, 0.25]), np.array([0.5, 0.5]), np.array([[0.5]])])
def test_edges_that_do_not_rise_are_refused(edges: np.ndarray) -> None:
    with pytest.raises(DataError, match="rising edges"):
        guess_same_bin(grey(0.3), grey(0.1), edges, stream=stream())


@thorough
@given(seed=st.integers(0, 10**6), count=st.integers(1, 8))
def test_nearest_synthetic_image_has_the_highest_psnr_of_all(seed: int, count: int) -> None:
    real, synthetic = make_images(3, seed, shape=SMALL), make_images(count, seed + 1, shape=SMALL)

    null = guess_nearest_synthetic(real, synthetic)

    each = [measure_psnr(real, np.repeat(synthetic[[j]], 3, axis=0)).capped_db for j in range(count)]
    assert null.name == "nearest-synthetic"
    assert measure_psnr(real, null.images).capped_db == pytest.approx(np.max(each, axis=0))


def test_best_of_all_foreign_images_is_the_nearest_and_the_best_of_one_is_one_image() -> None:
    real, foreign = make_images(6, 0, shape=SMALL), make_images(9, 1, shape=SMALL)

    every, one = (guess_best_foreign(real, foreign, count, stream=stream()) for count in (9, 1))

    assert every.name == "best-foreign"
    assert np.array_equal(every.images, guess_nearest_synthetic(real, foreign).images)
    assert (one.images == one.images[0]).all()
    assert any(np.array_equal(one.images[0], image) for image in foreign)


def test_foreign_images_are_drawn_without_repetition_by_the_given_stream() -> None:
    foreign = grey(*np.linspace(0, 1, 30))

    first, again, other = (guess_best_foreign(foreign, foreign, 15, stream=stream(seed)) for seed in (1, 1, 2))

    # Every drawn image is its own nearest, so as many differ as were drawn.
    assert len(np.unique(first.images[:, 0, 0, 0])) == 15
    assert np.array_equal(first.images, again.images)
    assert not np.array_equal(first.images, other.images)


@pytest.mark.parametrize("count", [0, 5])
def test_more_foreign_images_than_there_are_are_refused(count: int) -> None:
    with pytest.raises(DataError, match=f"count={count} <= 4 foreign images"):
        guess_best_foreign(grey(0.1), grey(0.1, 0.2, 0.3, 0.4), count, stream=stream())


def test_threshold_is_passed_by_one_best_foreign_image_in_a_hundred() -> None:
    # One foreign image, black: a grey real image of level s has a PSNR of -20 log10(s).
    levels = np.linspace(0.1, 0.9, 201)

    threshold = calibrate_threshold_db(grey(*levels), grey(0.0), 1, stream=stream())

    # The 99th percentile of 201 values is the third highest; PSNR falls with the level.
    assert threshold == pytest.approx(-20 * np.log10(levels[2]), abs=1e-9)


@pytest.mark.parametrize("guess", [guess_mean, guess_scaled_mean, guess_nearest_synthetic])
def test_images_of_another_shape_are_refused(guess) -> None:
    with pytest.raises(DataError, match="images to guess from of shape"):
        guess(grey(0.1), make_images(2, 0))
