"""Brightness that is aimed at the private distribution."""

from __future__ import annotations

import numpy as np
import pytest

from aegis_cache.acceptance.brightness import BrightnessTargets
from aegis_cache.acceptance.coverage import brightness, ks_distance, measure_coverage
from federation.datasets.image_set import ImageSet


def draw(count: int, seed: int, mean: float) -> np.ndarray:
    stream = np.random.default_rng(seed)
    level = stream.normal(mean, 15, size=(count, 1, 1, 1))
    return np.clip(level + stream.normal(0, 20, size=(count, 1, 6, 6)), 0, 255).astype(np.uint8)


def make_targets() -> tuple[BrightnessTargets, ImageSet]:
    images = np.concatenate([draw(400, 1, 90), draw(400, 2, 150)])
    real = ImageSet(images=images, labels=np.repeat(np.arange(2), 400))
    return BrightnessTargets.of(real), real


def test_aimed_images_are_as_bright_as_the_real_ones_of_their_class() -> None:
    targets, real = make_targets()
    labels = np.repeat(np.arange(2), 300)

    aimed = targets.aim(draw(600, 3, 120), labels, batch=0)

    for label in range(2):
        found = brightness(aimed[labels == label])
        assert ks_distance(found, brightness(real.images[real.labels == label])) < 0.02


def test_aimed_images_fill_bins_more_evenly_than_real_ones_do_by_chance() -> None:
    _, real = make_targets()
    labels = np.repeat(np.arange(2), 300)
    aimed = BrightnessTargets.of(real).aim(draw(600, 3, 120), labels, batch=0)

    coverage = measure_coverage(aimed, real.images, bins=200)

    assert coverage.occupancy_overlap > 1.05


def test_a_single_batch_is_neither_darker_nor_brighter_than_the_real_images() -> None:
    targets, real = make_targets()
    labels = np.repeat(np.arange(2), 10)

    aimed = targets.aim(draw(20, 8, 120), labels, batch=0)

    assert abs(brightness(aimed).mean() - brightness(real.images).mean()) < 1 / 255


def test_the_order_of_brightness_within_a_class_stays() -> None:
    targets, _ = make_targets()
    images, labels = draw(100, 4, 120), np.zeros(100, dtype=np.int64)

    aimed = targets.aim(images, labels, batch=0)

    before, after = np.argsort(brightness(images), kind="stable"), brightness(aimed)
    assert (np.diff(after[before]) >= -2 / 255).all()


def test_batches_aim_at_places_between_those_of_others() -> None:
    targets, _ = make_targets()
    images, labels = draw(50, 5, 90), np.zeros(50, dtype=np.int64)

    first, second = (np.sort(brightness(targets.aim(images, labels, batch=batch))) for batch in (0, 1))

    assert np.abs(first - second).max() > 1e-4


def test_black_and_white_stay_black_and_white() -> None:
    targets, _ = make_targets()
    images = draw(20, 6, 120)
    images[:, :, 0, 0], images[:, :, 0, 1] = 0, 255

    aimed = targets.aim(images, np.zeros(20, dtype=np.int64), batch=0)

    assert (aimed[:, :, 0, 0] == 0).all()
    assert (aimed[:, :, 0, 1] == 255).all()


def test_a_class_without_real_images_is_left_alone() -> None:
    targets, _ = make_targets()
    images = draw(5, 7, 120)

    aimed = targets.aim(images, np.full(5, 9), batch=0)

    assert np.array_equal(aimed, images)


def test_images_that_are_all_black_do_not_fail() -> None:
    targets, _ = make_targets()

    aimed = targets.aim(np.zeros((3, 1, 6, 6), dtype=np.uint8), np.zeros(3, dtype=np.int64), batch=0)

    assert aimed.max() == pytest.approx(0)
