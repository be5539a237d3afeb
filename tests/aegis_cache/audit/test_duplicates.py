"""Planted copies are found, also under noise of one grey level; fresh images and shifted copies are not claimed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from aegis_cache.audit.duplicates import DuplicateFinder, find_duplicates
from federation.errors import DataError


def draw(count: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(40, 210, size=(count, 1, 12, 12)).astype(np.uint8)


def with_noise(images: NDArray[np.uint8], levels: int) -> NDArray[np.uint8]:
    noise = np.random.default_rng(9).integers(-levels, levels + 1, size=images.shape)
    return (images.astype(np.int64) + noise).astype(np.uint8)


def test_exact_copies_are_found_where_they_were_planted() -> None:
    train, candidates = draw(60, 0), draw(20, 1)
    candidates[[3, 17]] = train[[41, 5]]

    found = DuplicateFinder(train).find(candidates)

    assert np.flatnonzero(found.exact).tolist() == [3, 17]
    assert found.nearest[[3, 17]].tolist() == [41, 5]
    assert np.flatnonzero(find_duplicates(candidates, train)).tolist() == [3, 17]


@pytest.mark.parametrize(("levels", "quantized"), [(1, True), (2, True), (5, False)])
def test_noisy_copies_are_near_and_up_to_two_grey_levels_quantized(levels: int, quantized: bool) -> None:
    train, candidates = draw(60, 0), draw(20, 1)
    candidates[4] = with_noise(train[11], levels)

    found = DuplicateFinder(train).find(candidates)

    assert not found.exact.any()
    assert np.flatnonzero(found.near).tolist() == [4]
    assert np.flatnonzero(found.quantized).tolist() == ([4] if quantized else [])


def test_two_views_of_one_patient_do_not_switch_the_search_for_near_ones_off() -> None:
    train, candidates = draw(60, 0), draw(20, 1)
    train[1] = train[0]
    train[1, 0, 0, 0] += 1
    candidates[4] = with_noise(train[11], 1)

    found = DuplicateFinder(train).find(candidates)

    assert np.flatnonzero(found.near).tolist() == [4]
    assert np.flatnonzero(found.found).tolist() == [4]


def test_repeated_training_images_do_not_switch_the_search_for_near_ones_off() -> None:
    train, candidates = draw(60, 0), draw(20, 1)
    train[1] = train[0]
    candidates[4] = with_noise(train[11], 5)

    assert np.flatnonzero(DuplicateFinder(train).find(candidates).near).tolist() == [4]


def test_fresh_images_and_shifted_copies_are_not_claimed() -> None:
    train = draw(60, 0)
    candidates = np.concatenate([draw(40, 1), np.roll(train[:10], 1, axis=3)])

    assert not find_duplicates(candidates, train).any()


def test_near_means_half_the_smallest_distance_within_the_class() -> None:
    # Class 0 is spread by 100 grey levels in one pixel, class 1 by 20; the candidate lies 15 from one image of each.
    train = np.zeros((4, 1, 1, 2), dtype=np.uint8)
    train[:, 0, 0] = [[0, 0], [100, 0], [0, 200], [20, 200]]
    labels = np.array([0, 0, 1, 1])
    candidates = np.array([[15, 0], [35, 200]], dtype=np.uint8).reshape(2, 1, 1, 2)

    found = DuplicateFinder(train, labels).find(candidates)

    assert found.near.tolist() == [True, False]
    assert DuplicateFinder(train, labels, factor=0.1).find(candidates).near.tolist() == [False, False]


def test_copies_of_another_class_are_found_too() -> None:
    train = draw(20, 0)
    finder = DuplicateFinder(train, np.arange(20) % 3)

    assert finder.find(train).exact.all()
    assert finder.find(train).nearest.tolist() == list(range(20))


def test_single_training_image_is_compared_without_a_distance_to_others() -> None:
    train = draw(1, 0)

    mask = find_duplicates(np.concatenate([with_noise(train, 1), draw(1, 5)]), train)

    assert mask.tolist() == [True, False]


def test_no_candidates_give_an_empty_mask() -> None:
    mask = find_duplicates(draw(0, 0), draw(3, 0))

    assert mask.shape == (0,)
    assert mask.dtype == np.bool_


@pytest.mark.parametrize(
    ("candidates", "train"),
    [
        pytest.param(draw(2, 0), draw(0, 0), id="no train"),
        pytest.param(draw(2, 0)[:, :, :5], draw(2, 0), id="another shape"),
        pytest.param(draw(2, 0).astype(np.float32), draw(2, 0), id="floats"),
    ],
)
def test_images_that_cannot_be_compared_are_refused(candidates: NDArray, train: NDArray) -> None:
    with pytest.raises(DataError, match="Expected"):
        find_duplicates(candidates, train)


def test_factor_above_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"factor=1\.5"):
        find_duplicates(draw(1, 0), draw(2, 0), factor=1.5)
