"""Pixel features are the pixels, or their averages over squares."""

from __future__ import annotations

import pytest
import torch

from aegis_cache.features.pixels import PixelFeatures
from federation.errors import DataError


def test_features_are_the_pixels_in_order() -> None:
    images = torch.rand(70, 3, 5, 4, generator=torch.Generator().manual_seed(0))

    features = PixelFeatures().extract(images)

    assert torch.equal(features, images.reshape(70, 60))


def test_pooling_averages_squares_and_leaves_the_smaller_ones_at_the_border() -> None:
    image = torch.tensor([[0.0, 0.2, 0.4], [0.4, 0.2, 0.6], [0.1, 0.3, 0.9]])

    features = PixelFeatures(pool=2).extract(image[None, None])

    torch.testing.assert_close(features, torch.tensor([[0.2, 0.5, 0.2, 0.9]]))


def test_identity_tells_poolings_apart() -> None:
    assert PixelFeatures(pool=2).identity == PixelFeatures(pool=2).identity
    assert PixelFeatures(pool=2).identity != PixelFeatures().identity
    assert "sha256:" in PixelFeatures().identity


@pytest.mark.parametrize(
    "images",
    [
        pytest.param(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), id="integers"),
        pytest.param(torch.zeros(1, 4, 4), id="no batch"),
        pytest.param(torch.zeros(0, 1, 4, 4), id="empty"),
    ],
)
def test_other_than_float_images_are_refused(images: torch.Tensor) -> None:
    with pytest.raises(DataError, match="Expected float32 images"):
        PixelFeatures().extract(images)


def test_pool_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="pool=0"):
        PixelFeatures(pool=0)
