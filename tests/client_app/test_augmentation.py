"""Augmentation moves or mirrors an image and does nothing else to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from client_app.augmentation import augment

KINDS = ["none", "shift", "shift-flip"]


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(count: int, channels: int = 1, height: int = 7, width: int = 5) -> Tensor:
    return torch.rand(count, channels, height, width, generator=generator_of(count))


def translations(image: Tensor) -> list[tuple[int, int, np.ndarray]]:
    """Return `image`, shape (C, H, W), moved by -2 to 2 pixels each way with its edges repeated, by NumPy."""
    padded = np.pad(image.numpy(), ((0, 0), (2, 2), (2, 2)), mode="edge")
    height, width = image.shape[1:]
    return [
        (down, right, padded[:, 2 - down : 2 - down + height, 2 - right : 2 - right + width])
        for down in range(-2, 3)
        for right in range(-2, 3)
    ]


def explain(result: Tensor, image: Tensor, *, mirrored: bool) -> tuple[int, int, bool] | None:
    """Return the translation, and whether mirrored after it, that turns `image` into `result`."""
    for down, right, moved in translations(image):
        if np.array_equal(result.numpy(), moved):
            return down, right, False
        if mirrored and np.array_equal(result.numpy(), moved[:, :, ::-1]):
            return down, right, True
    return None


def test_none_returns_the_batch_and_draws_nothing() -> None:
    images, generator = random_images(3), generator_of(0)
    before = generator.get_state()

    result = augment(images, "none", generator)

    assert torch.equal(result, images)
    assert torch.equal(generator.get_state(), before)


@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([1, 3]))
def test_shift_is_a_translation_by_at_most_two_pixels_with_edges_repeated(seed: int, count: int, channels: int) -> None:
    images = random_images(count, channels)

    result = augment(images, "shift", generator_of(seed))

    assert result.shape == images.shape
    assert None not in [explain(result[index], images[index], mirrored=False) for index in range(count)]


@given(st.integers(0, 2**32), st.integers(1, 9))
def test_shift_flip_is_a_translation_that_may_be_mirrored_left_to_right(seed: int, count: int) -> None:
    images = random_images(count, channels=3)

    result = augment(images, "shift-flip", generator_of(seed))

    assert None not in [explain(result[index], images[index], mirrored=True) for index in range(count)]


def test_images_of_a_batch_move_independently_and_every_translation_occurs() -> None:
    images = random_images(800)

    result = augment(images, "shift-flip", generator_of(1))

    found = [explain(result[index], images[index], mirrored=True) for index in range(800)]
    flips = sum(move[2] for move in found if move)
    assert {move[:2] for move in found if move} == {(down, right) for down in range(-2, 3) for right in range(-2, 3)}
    assert abs(flips - 400) < 5 * 800**0.5 / 2


@pytest.mark.parametrize("kind", KINDS)
def test_values_stay_in_the_unit_interval_and_the_batch_is_not_written(kind: str) -> None:
    images = (random_images(20, channels=3) > 0.5).float()
    before = images.clone()

    result = augment(images, kind, generator_of(2))

    assert set(result.unique().tolist()) <= {0.0, 1.0}
    assert torch.equal(images, before)
    assert (result.shape, result.dtype) == (images.shape, images.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_generator_advances_equally_whatever_the_images(kind: str) -> None:
    first, second = generator_of(3), generator_of(3)

    augment(torch.zeros(6, 1, 7, 5), kind, first)
    augment(torch.rand(6, 3, 28, 28), kind, second)

    assert torch.equal(first.get_state(), second.get_state())


@pytest.mark.parametrize("kind", ["shift", "shift-flip"])
def test_same_generator_gives_the_same_images_and_another_gives_others(kind: str) -> None:
    images = random_images(16)

    first, second, other = (augment(images, kind, generator_of(seed)) for seed in (4, 4, 5))

    assert torch.equal(first, second)
    assert not torch.equal(first, other)
