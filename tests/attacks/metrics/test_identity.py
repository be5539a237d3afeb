"""An image is identified when its reconstruction is nearer to it than to any other training image."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.metrics.identity import Gallery, identify
from federation.errors import DataError
from tests.attacks.metrics.made_up_images import make_images, make_nothing


def test_image_is_identified_exactly_when_no_training_image_is_nearer() -> None:
    everyone, positions = make_images(40, 0), np.arange(5, 25)
    real = everyone[positions]
    found = np.clip(real + np.random.default_rng(1).normal(0, 1.5, real.shape), 0, 1)

    identified = identify(real, found, Gallery(images=everyone, positions=positions))

    errors = np.square(found[:, None] - everyone).mean(axis=(2, 3, 4))
    assert identified.tolist() == (errors.argmin(axis=1) == positions).tolist()
    assert 0 < identified.sum() < 20


def test_images_without_reconstruction_are_not_identified_and_spoil_no_other() -> None:
    everyone = make_images(4, 0)
    found = np.concatenate([make_nothing(1), everyone[1:3]])

    identified = identify(everyone[:3], found, Gallery(images=everyone, positions=np.arange(3)))

    assert identified.tolist() == [False, True, True]


def test_nothing_found_at_all_identifies_nobody() -> None:
    everyone = make_images(4, 0)

    assert not identify(everyone, make_nothing(4), Gallery(images=everyone, positions=np.arange(4))).any()


def test_copy_of_the_right_training_image_counts_as_it() -> None:
    everyone = np.concatenate([make_images(2, 0), make_images(2, 0)])

    assert identify(everyone[2:], everyone[2:], Gallery(images=everyone, positions=np.array([2, 3]))).all()


def test_candidates_are_clamped_before_they_are_compared() -> None:
    # The nearer of two grey images is told by the mean: 0.35 as it comes, nearer to black, and 0.5 when clamped.
    everyone = np.stack([np.full((1, 2, 2), 0.0), np.full((1, 2, 2), 0.9)])
    found = np.array([[[[2.6, -1.9], [-1.9, 2.6]]], [[[0.8, 0.8], [0.8, 0.8]]]])

    identified = identify(everyone, found, Gallery(images=everyone, positions=np.arange(2)))

    assert identified.tolist() == [False, True]


@pytest.mark.parametrize("positions", [[1, 0], [0, 4], [-4, 1], [0]])
def test_gallery_that_does_not_hold_the_images_where_it_says_is_refused(positions: list[int]) -> None:
    everyone = make_images(4, 0)

    with pytest.raises(DataError, match="positions"):
        identify(everyone[:2], everyone[:2], Gallery(images=everyone, positions=np.array(positions)))
