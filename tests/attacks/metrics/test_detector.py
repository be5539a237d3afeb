"""The detector's area under the curve: the closed form, and that it sees what differs and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from attacks.metrics.detector import area_under_curve, measure_detectability, measure_linear_detectability
from federation.errors import DataError


def make_images(count: int, seed: int, *, bright: float = 0.0) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).uniform(0, 0.5, (count, 1, 8, 8)) + bright
    return drawn.astype(np.float32)


def test_area_is_the_share_of_pairs_in_the_right_order_with_ties_for_half() -> None:
    negatives, positives = np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0])

    area = area_under_curve(negatives, positives)

    assert area == pytest.approx((1 + 0.5 + 0 + 3) / 6)


def test_brighter_images_are_told_from_real_ones() -> None:
    known, asked = (make_images(200, 0), make_images(150, 1, bright=0.3)), (make_images(50, 2), make_images(60, 3))
    brighter = (asked[0], make_images(60, 3, bright=0.3))

    assert measure_detectability(known, brighter, seed=0) > 0.95
    assert 0.35 < measure_detectability(known, asked, seed=0) < 0.65


def test_direction_tells_a_little_light_in_one_corner_and_nothing_where_nothing_differs() -> None:
    known, asked = (make_images(200, 0), make_images(200, 1)), (make_images(60, 2), make_images(60, 3))
    lit = [images.copy() for images in (known[1], asked[1])]
    for images in lit:
        images[:, :, 0, 0] += 0.6

    assert measure_linear_detectability((known[0], lit[0]), (asked[0], lit[1])) > 0.95
    assert 0.3 < measure_linear_detectability(known, asked) < 0.7


def test_missing_images_are_an_error() -> None:
    some, none = make_images(4, 0), make_images(4, 1)[:0]

    with pytest.raises(DataError, match="found none of a kind"):
        measure_detectability((some, some), (some, none), seed=0)
