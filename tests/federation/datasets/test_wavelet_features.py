"""Wavelet features: fixed filters, one image at a time, checked against convolution written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from federation.config import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.datasets.sites import load_site, load_union_test
from federation.datasets.wavelet_features import replace_by_features, wavelet_features
from federation.errors import DataError


def images_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 1, 28, 28), dtype=np.uint8)


def by_hand(image: np.ndarray) -> np.ndarray:
    """Return the features of one 28 x 28 image through scipy, straight from the formulas."""
    pixels, rows = image.astype(np.float64) / 255, []
    steps = np.arange(-5, 6)
    window = np.exp(-(steps[:, None] ** 2 + steps[None, :] ** 2) / (2 * 1.6**2))
    for scale, radius in enumerate((4, 7, 13)):
        stddev, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
        y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
        for orientation in range(8):
            angle = math.pi * orientation / 8
            along = math.cos(angle) * x + math.sin(angle) * y
            across = math.cos(angle) * y - math.sin(angle) * x
            envelope = np.exp(-(along**2 + across**2 / 4) / (2 * stddev**2)) / (4 * math.pi * stddev**2)
            wave = envelope * np.exp(1j * frequency * along)
            wave -= envelope * wave.real.sum() / envelope.sum()
            real = ndimage.correlate(pixels, wave.real, mode="wrap")
            imaginary = ndimage.correlate(pixels, wave.imag, mode="wrap")
            pooled = ndimage.correlate(np.hypot(real, imaginary), window / window.sum(), mode="wrap")
            rows.append(pooled[::4, ::4])
    share = (np.log(np.clip(rows, 0, 1) + 1e-3) - math.log(1e-3)) / (math.log(1.001) - math.log(1e-3))
    return share * 255


def test_features_follow_the_formulas() -> None:
    images = images_of(2)

    features = wavelet_features(images)

    assert features.shape == (2, 24, 7, 7)
    assert features.dtype == np.uint8
    for image, found in zip(images, features, strict=True):
        assert np.abs(found - by_hand(image[0])).max() <= 0.51


def test_brightness_alone_leaves_no_trace() -> None:
    flat = np.full((2, 1, 28, 28), [[[[40]]], [[[200]]]], dtype=np.uint8)

    dark, bright = wavelet_features(flat)

    assert dark.max() <= 1
    assert bright.max() <= 1


@settings(max_examples=5, deadline=None)
@given(others=st.integers(1, 5), seed=st.integers(0, 100))
def test_features_of_an_image_depend_on_no_other_image(others: int, seed: int) -> None:
    images = images_of(1 + others, seed)

    assert (wavelet_features(images)[0] == wavelet_features(images[:1])[0]).all()


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
def test_sites_and_server_see_the_same_features(shift: float, seed: int, partition: str) -> None:
    data = DataConfig.model_validate(
        {"name": "phantom", "phantom_examples": 120, "phantom_classes": 2, "features": "wavelet", "site_shift": shift}
        | {"partition": partition, "dirichlet_alpha": 5.0}
    )
    plain = data.model_copy(update={"features": "none"})

    site, raw = load_site(data, site=1, sites=2, seed=seed), load_site(plain, site=1, sites=2, seed=seed)
    union = load_union_test(data, sites=2, seed=seed)

    assert (site.info.channels, site.info.height, site.info.width) == (24, 7, 7)
    assert (site.train.images == wavelet_features(raw.train.images)).all()
    assert (union.images[-len(site.test) :] == site.test.images).all()
    assert not site.train.images.flags.writeable
    assert load_site(data, site=1, sites=2, seed=seed) is site


@pytest.mark.parametrize(("channels", "side"), [(3, 28), (1, 27)])
def test_images_that_the_filters_do_not_fit_are_refused(channels: int, side: int) -> None:
    info = DatasetInfo(
        name="x", task=Task.MULTICLASS, class_names=("a", "b"), channels=channels, height=side, width=side
    )
    split = ImageSet(images=np.zeros((1, channels, side, side), np.uint8), labels=np.zeros(1, np.int64))

    with pytest.raises(DataError, match=r"grey images of at least 28 x 28"):
        replace_by_features(Dataset(info=info, train=split, validation=split, test=split))
