"""Synthetic images come from their places in the cache, only when they are taken, and vary only by a little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from aegis_cache.store.cache import Cache, open_cache
from client_app.augmentation import Augmentation
from client_app.masking.synthetic import SyntheticImages
from tests.client_app.masking.made_up_caches import make_cache

CPU = torch.device("cpu")
CHOSEN = np.array([6, 1, 4, 9])
ROUNDING = 1e-6
thorough = settings(max_examples=50, deadline=None)


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def filled_images(folder: Path, *, varied: bool = False) -> SyntheticImages:
    """Return chosen images of a cache whose image number p has pixels of 20 p and the label p modulo 3."""
    make_cache(folder, images=10, fill=20 * np.arange(10)[:, None, None, None], labels=np.arange(10) % 3)
    return SyntheticImages(cache=open_cache(folder), chosen=CHOSEN, varied=varied)


def varied_images() -> SyntheticImages:
    """Return images of no cache: what varies them does not look at it."""
    nothing: Any = None
    return SyntheticImages(cache=nothing, chosen=np.arange(1), varied=True)


def random_images(count: int, height: int = 7, width: int = 5) -> Tensor:
    return torch.rand(count, 1, height, width, generator=generator_of(count))


def is_slight_change(found: Tensor, image: Tensor) -> bool:
    """Return whether `found` is `image` moved by up to two pixels and multiplied by 0.95 to 1.05, by NumPy."""
    padded = np.pad(image.double().numpy(), ((0, 0), (2, 2), (2, 2)), mode="edge")
    height, width = image.shape[1:]
    for row, column in np.ndindex(5, 5):
        moved = padded[:, row : row + height, column : column + width]
        gain = found.double().numpy() / moved
        inside = found.numpy() < 1
        same = np.ptp(gain[inside]) < 1e-5 and abs(gain[inside].mean() - 1) <= 0.05 + 1e-5
        if same and (gain[~inside] <= gain[inside].mean() + 1e-5).all():
            return True
    return False


def test_images_and_labels_are_those_of_the_chosen_places_in_the_wanted_order(tmp_path: Path) -> None:
    synthetic = filled_images(tmp_path)

    images, labels = synthetic.take(np.array([3, 0, 2, 0]), CPU)

    assert len(synthetic) == 4
    assert labels.tolist() == [9 % 3, 6 % 3, 4 % 3, 6 % 3]
    expected = torch.tensor([180, 120, 80, 120]).float() / 255
    torch.testing.assert_close(images, expected[:, None, None, None].expand(4, 1, 8, 8), rtol=0, atol=0)


def test_images_and_labels_are_of_the_types_that_training_wants(tmp_path: Path) -> None:
    images, labels = filled_images(tmp_path, varied=True).take(np.array([1]), CPU)

    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)


def test_no_image_is_read_before_it_is_taken_and_then_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[int]] = []
    take = Cache.take

    def watched(cache: Cache, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        read.append(indices.tolist())
        return take(cache, indices)

    monkeypatch.setattr(Cache, "take", watched)
    synthetic = filled_images(tmp_path)

    before = list(read)
    synthetic.take(np.array([2, 1]), CPU)

    assert before == []
    assert read == [[4, 1]]


def test_images_do_not_alias_the_cache(tmp_path: Path) -> None:
    synthetic = filled_images(tmp_path)

    images, labels = synthetic.take(np.array([0]), CPU)
    images.zero_()
    labels.fill_(2)

    again, classes = synthetic.take(np.array([0]), CPU)
    assert float(again.max()) == pytest.approx(120 / 255)
    assert classes.tolist() == [0]


def test_images_that_do_not_vary_are_left_alone_and_draw_nothing(tmp_path: Path) -> None:
    generator = generator_of(0)

    variation = filled_images(tmp_path).draw_variation(3, generator)

    assert variation == Augmentation()
    assert torch.equal(generator.get_state(), generator_of(0).get_state())


@thorough
@given(seed=st.integers(0, 2**32), count=st.integers(1, 6))
def test_variation_is_a_shift_by_two_pixels_and_a_gain_of_five_percent_within_the_unit_interval(
    seed: int, count: int
) -> None:
    images = random_images(count) * 0.99 + 0.01

    found = varied_images().draw_variation(count, generator_of(seed)).apply(images)

    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert all(is_slight_change(found[index], images[index]) for index in range(count))


def test_white_images_stay_in_the_unit_interval_and_are_not_written_to() -> None:
    images = torch.ones(50, 1, 4, 4)

    found = varied_images().draw_variation(50, generator_of(0)).apply(images)

    assert float(found.max()) == 1.0
    assert float(found.min()) >= 0.95 - ROUNDING
    assert torch.equal(images, torch.ones(50, 1, 4, 4))


def test_gains_fill_their_interval_and_every_shift_occurs() -> None:
    variation = varied_images().draw_variation(2000, generator_of(1))

    assert variation.gains is not None
    assert variation.offsets is not None
    assert variation.flipped is None
    assert 0.95 - ROUNDING <= float(variation.gains.min()) < 0.951
    assert 1.049 < float(variation.gains.max()) <= 1.05 + ROUNDING
    assert abs(float(variation.gains.mean()) - 1) < 5 * (0.1 / 12**0.5) / 2000**0.5
    assert set(map(tuple, variation.offsets.T.tolist())) == set(np.ndindex(5, 5))


def test_image_varies_differently_every_time_and_from_its_neighbours() -> None:
    synthetic, generator = varied_images(), generator_of(2)
    images = random_images(1).expand(20, -1, -1, -1)

    first, second = (synthetic.draw_variation(20, generator).apply(images) for _ in range(2))

    assert len({image.numpy().tobytes() for image in torch.cat([first, second])}) == 40
