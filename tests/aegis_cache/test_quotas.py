"""Whole numbers after proportions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aegis_cache.quotas import share_out, take_missing


@given(st.integers(0, 5000), st.lists(st.integers(0, 100), min_size=1, max_size=12).filter(any))
def test_parts_add_up_and_lie_within_one_of_their_share(total: int, weights: list[int]) -> None:
    proportions = np.array(weights, dtype=float)

    parts = share_out(total, proportions)

    assert parts.sum() == total
    assert (np.abs(parts - total * proportions / proportions.sum()) < 1).all()


def test_of_each_class_the_first_accepted_images_are_taken_up_to_what_is_missing() -> None:
    labels = np.array([0, 0, 0, 1, 1, 2])
    accepted = np.array([False, True, True, True, False, True])

    taken = take_missing(labels, accepted, np.array([1, 5, 0]))

    assert taken.tolist() == [1, 3]
