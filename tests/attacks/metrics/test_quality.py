"""PSNR and SSIM of each image are what their formulas and scikit-image give, and no image spoils another."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from attacks.metrics.quality import measure_psnr, measure_ssim
from federation.errors import DataError
from tests.attacks.metrics.made_up_images import at_psnr, make_images, make_nothing

thorough = settings(max_examples=40, deadline=None)


@thorough
@given(step=st.floats(1e-4, 1.0))
def test_psnr_of_a_constant_step_is_minus_twenty_times_its_logarithm(step: float) -> None:
    real = np.zeros((1, 2, 3, 3))

    psnr = measure_psnr(real, real + step)

    assert psnr.raw_db[0] == pytest.approx(-20 * math.log10(step), abs=1e-9)


def test_psnr_agrees_with_scikit_image_on_every_image() -> None:
    real, found = make_images(5, 0, shape=(3, 7, 9)), make_images(5, 1, shape=(3, 7, 9))

    psnr = measure_psnr(real, found)

    expected = [peak_signal_noise_ratio(left, right, data_range=1.0) for left, right in zip(real, found, strict=True)]
    assert psnr.capped_db == pytest.approx(expected, rel=1e-12)


def test_exact_copy_has_the_cap_and_is_raw_infinite() -> None:
    real = make_images(1, 0)

    psnr = measure_psnr(real, real)

    assert psnr.capped_db.tolist() == [100.0]
    assert psnr.raw_db.tolist() == [math.inf]


def test_near_copy_is_capped_but_told_raw() -> None:
    real = make_images(1, 0)

    psnr = measure_psnr(real, at_psnr(real, 130.0))

    assert psnr.capped_db[0] == 100.0
    assert psnr.raw_db[0] == pytest.approx(130.0, abs=1e-6)


def test_mean_of_two_images_is_not_the_psnr_of_their_mean_error() -> None:
    real = make_images(2, 0)
    found = np.concatenate([at_psnr(real[:1], 10.0), at_psnr(real[1:], 50.0)])

    mean = measure_psnr(real, found).capped_db.mean()

    assert mean == pytest.approx(30.0)
    assert -10 * math.log10(np.square(real - found).mean()) < 14


def test_candidates_are_clamped_before_they_are_compared() -> None:
    real = np.stack([np.zeros((1, 11, 11)), np.ones((1, 11, 11))])
    beyond = np.stack([np.full((1, 11, 11), -3.0), np.full((1, 11, 11), 8.0)])

    assert measure_psnr(real, beyond).capped_db.tolist() == [100.0, 100.0]
    assert measure_ssim(real, beyond) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_pixel_that_is_not_finite_fails_its_image_and_no_other(value: float) -> None:
    real = make_images(3, 0)
    found = at_psnr(real, 25.0)
    found[1, 0, 4, 5] = value

    psnr, ssim = measure_psnr(real, found), measure_ssim(real, found)

    alone = measure_ssim(real[[0, 2]], found[[0, 2]])
    assert psnr.capped_db == pytest.approx([25.0, 0.0, 25.0])
    assert psnr.raw_db == pytest.approx([25.0, 0.0, 25.0])
    assert ssim.tolist() == [alone[0], 0.0, alone[1]]


def test_farthest_image_has_zero_decibels() -> None:
    psnr = measure_psnr(np.zeros((1, 1, 2, 2)), np.ones((1, 1, 2, 2)))

    assert psnr.capped_db.tolist() == [0.0]


@thorough
@given(seed=st.integers(0, 10**6), scale=st.floats(0, 5))
def test_psnr_and_ssim_stay_in_their_ranges(seed: int, scale: float) -> None:
    real = make_images(2, seed, shape=(1, 11, 11))
    found = scale * np.random.default_rng(seed + 1).normal(size=real.shape)

    psnr, ssim = measure_psnr(real, found).capped_db, measure_ssim(real, found)

    assert ((psnr >= 0) & (psnr <= 100)).all()
    assert ((ssim >= -1) & (ssim <= 1)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_floats_are_measured_in_float64(dtype: type) -> None:
    real: np.ndarray = make_images(2, 0).astype(dtype)
    found: np.ndarray = make_images(2, 1).astype(dtype)

    narrow, wide = measure_psnr(real, found), measure_psnr(real.astype(np.float64), found.astype(np.float64))

    assert narrow.raw_db.tolist() == wide.raw_db.tolist()


@pytest.mark.parametrize("channels", [1, 3])
def test_ssim_is_scikit_images_with_the_settings_of_wang_averaged_over_channels(channels: int) -> None:
    real, noise = make_images(3, 0, shape=(channels, 28, 28)), make_images(3, 1, shape=(channels, 28, 28))
    found = 0.8 * real + 0.2 * noise

    scores = measure_ssim(real, found)

    expected = [
        np.mean(
            [
                structural_similarity(
                    left, right, data_range=1.0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
                )
                for left, right in zip(image, guess, strict=True)
            ]
        )
        for image, guess in zip(real, found, strict=True)
    ]
    assert scores == pytest.approx(expected, rel=1e-12)


def test_ssim_of_one_window_is_the_formula_of_wang() -> None:
    # An image as large as the window has one window: weighted moments, K1 = 0.01, K2 = 0.03, dynamic range 1.
    real, found = make_images(1, 0, shape=(1, 11, 11)), make_images(1, 1, shape=(1, 11, 11))
    axis = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    weights = np.outer(axis, axis) / axis.sum() ** 2
    x, y = real[0, 0], found[0, 0]
    mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
    var_x, var_y = (weights * x * x).sum() - mean_x**2, (weights * y * y).sum() - mean_y**2
    covariance = (weights * x * y).sum() - mean_x * mean_y

    score = measure_ssim(real, found)[0]

    luminance = (2 * mean_x * mean_y + 0.01**2) / (mean_x**2 + mean_y**2 + 0.01**2)
    structure = (2 * covariance + 0.03**2) / (var_x + var_y + 0.03**2)
    assert score == pytest.approx(luminance * structure, rel=1e-9)


@pytest.mark.parametrize("shape", [(1, 10, 28), (1, 28, 10)])
def test_ssim_refuses_images_smaller_than_its_window(shape: tuple[int, int, int]) -> None:
    real = make_images(1, 0, shape=shape)

    with pytest.raises(DataError, match="at least 11 x 11 for SSIM"):
        measure_ssim(real, real)


def test_real_images_that_are_not_in_the_unit_interval_are_refused() -> None:
    real = make_images(2, 0)
    real[1, 0, 0, 0] = 1.01

    with pytest.raises(DataError, match=r"real images in \[0, 1\]"):
        measure_psnr(real, real)


@pytest.mark.parametrize(
    ("real", "found", "words"),
    [
        (make_nothing(1), make_images(1, 0), r"real images in \[0, 1\]"),
        (make_images(2, 0), make_images(3, 0), "each of 2 images, found 3"),
        (make_images(2, 0), make_images(2, 0, shape=(1, 13, 12)), "candidates of shape"),
        (make_images(2, 0)[:, 0], make_images(2, 0), "real images as floats of shape"),
        (make_images(0, 0), make_images(0, 0), "at least one image"),
        (np.zeros((1, 1, 2, 2), dtype=np.uint8), np.zeros((1, 1, 2, 2)), "found uint8"),
    ],
)
def test_images_that_do_not_fit_are_refused(real: np.ndarray, found: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        measure_psnr(real, found)
