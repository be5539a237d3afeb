"""Augmentation moves or mirrors an image and does nothing else to it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from client_app.augmentation import Augmentation, augment, draw_augmentation, draw_offsets

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


def augment_at_once(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Return what `augment` did before changes were drawn ahead of time: one draw of moves, then one of mirrors."""
    if kind == "none":
        return images
    down, right = torch.randint(0, 5, (2, len(images)), generator=generator)
    moved = [translations(image)[(4 - y) * 5 + 4 - x][2] for image, y, x in zip(images, down, right, strict=True)]
    result = torch.from_numpy(np.stack(moved))
    if kind == "shift-flip":
        mirrored = torch.rand(len(images), generator=generator) < 0.5
        result[mirrored] = result[mirrored].flip(3)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_images_and_random_numbers_are_those_of_drawing_and_changing_at_once(kind: str) -> None:
    images, ours, theirs = random_images(12, channels=3), generator_of(6), generator_of(6)

    result, expected = augment(images, kind, ours), augment_at_once(images, kind, theirs)

    assert torch.equal(result, expected)
    assert torch.equal(ours.get_state(), theirs.get_state())


def draw_everything(count: int, kind: str, *, brightened: bool) -> Augmentation:
    generator = generator_of(count)
    drawn = draw_augmentation(count, kind, generator)
    gains = torch.rand(count, generator=generator) + 0.5 if brightened else None
    return Augmentation(offsets=drawn.offsets, flipped=drawn.flipped, gains=gains)


@settings(max_examples=50, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    brightened=st.booleans(),
    count=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 9), max_size=4),
)
def test_changes_applied_part_by_part_are_those_applied_to_the_whole(
    kind: str, brightened: bool, count: int, cuts: list[int]
) -> None:
    images, drawn = random_images(count, channels=3), draw_everything(count, kind, brightened=brightened)
    borders = [0, *sorted(min(cut, count) for cut in cuts), count]

    parts = [drawn.part(start, stop).apply(images[start:stop]) for start, stop in pairwise(borders)]

    assert torch.equal(torch.cat(parts), drawn.apply(images))


def test_gain_multiplies_and_stops_at_white() -> None:
    images = torch.tensor([0.1, 0.5, 0.9]).reshape(3, 1, 1, 1).expand(3, 1, 2, 2)

    result = Augmentation(gains=torch.tensor([2.0, 0.5, 2.0])).apply(images)

    torch.testing.assert_close(result[:, 0, 0, 0], torch.tensor([0.2, 0.25, 1.0]))


def test_offsets_are_drawn_one_row_for_down_and_one_for_right() -> None:
    offsets = draw_offsets(500, generator_of(7))

    assert offsets.shape == (2, 500)
    assert set(map(tuple, offsets.T.tolist())) == set(np.ndindex(5, 5))
