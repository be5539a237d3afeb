"""Stored bytes become the numbers that a network sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import arrays
from PIL import Image

from federation.preprocessing import align, to_bytes, to_unit_interval


def test_every_byte_becomes_its_share_of_255() -> None:
    stored = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)

    seen = to_unit_interval(stored)

    torch.testing.assert_close(seen.double().flatten(), torch.arange(256).double() / 255, rtol=1e-7, atol=0)
    assert seen.dtype == torch.float32
    assert (seen.min().item(), seen.max().item()) == (0.0, 1.0)


def test_stored_images_stay_as_they_are() -> None:
    stored = torch.full((2, 3, 4, 4), 200, dtype=torch.uint8)

    to_unit_interval(stored)

    assert torch.equal(stored, torch.full((2, 3, 4, 4), 200, dtype=torch.uint8))


@given(arrays(np.uint8, (2, 3, 4, 5)))
def test_bytes_survive_the_way_to_the_unit_interval_and_back(pixels: np.ndarray) -> None:
    images = torch.from_numpy(pixels)

    assert torch.equal(to_bytes(to_unit_interval(images)), images)


def test_aligning_what_is_aligned_changes_nothing() -> None:
    pixels = torch.randint(0, 256, (4, 1, 28, 28), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)

    assert torch.equal(align(to_unit_interval(pixels), channels=1, height=28, width=28), pixels)


def test_a_wide_image_is_cut_at_both_sides_not_squeezed() -> None:
    wide = torch.zeros(1, 1, 8, 16)
    wide[..., 4:12] = 1.0

    aligned = align(wide, channels=1, height=8, width=8)

    assert (aligned == 255).all()


def test_resizing_keeps_the_mean_brightness() -> None:
    image = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(1))

    aligned = to_unit_interval(align(image, channels=1, height=16, width=16))

    assert float(aligned.mean()) == pytest.approx(float(image.mean()), abs=2 / 255)


def test_grey_from_rgb_agrees_with_pillow() -> None:
    pixels = torch.randint(0, 256, (1, 3, 9, 9), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    expected = np.asarray(Image.fromarray(pixels[0].permute(1, 2, 0).numpy()).convert("L"), dtype=np.int16)

    grey = align(to_unit_interval(pixels), channels=1, height=9, width=9)

    assert np.abs(grey[0, 0].numpy().astype(np.int16) - expected).max() <= 1


def test_rgb_from_grey_repeats_it() -> None:
    grey = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(3))

    rgb = align(grey, channels=3, height=5, width=5)

    assert torch.equal(rgb[:, 0], rgb[:, 2])


@pytest.mark.parametrize(
    ("images", "channels"),
    [
        (torch.zeros(1, 2, 4, 4), 1),
        (torch.zeros(1, 4, 4), 1),
        (torch.zeros(1, 1, 4, 4), 2),
        (torch.zeros(1, 1, 4, 4, dtype=torch.uint8), 1),
    ],
)
def test_images_of_another_kind_are_refused_with_what_was_found(images: torch.Tensor, channels: int) -> None:
    with pytest.raises(ValueError, match="found"):
        align(images, channels=channels, height=4, width=4)
