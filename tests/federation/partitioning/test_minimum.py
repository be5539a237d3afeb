"""The repair that gives every hospital its minimum: complete by Hall's theorem, and no larger than needed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from federation.partitioning.minimum import raise_to_minimum


@st.composite
def holdings(draw):
    sites, strata = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    shape = st.lists(st.lists(st.integers(0, 4), min_size=strata, max_size=strata), min_size=sites, max_size=sites)
    flags = st.lists(st.lists(st.booleans(), min_size=strata, max_size=strata), min_size=sites, max_size=sites)
    allowed = np.array(draw(flags))
    return np.where(allowed, np.array(draw(shape)), 0), allowed, draw(st.integers(1, 4))


def can_be_met(counts, allowed, minimum):
    """Hall's condition: the images that any group of hospitals may hold suffice for the group."""
    sites, sizes = len(counts), counts.sum(axis=0)
    groups = [list(group) for size in range(1, sites + 1) for group in combinations(range(sites), size)]
    return all(sizes[allowed[group].any(axis=0)].sum() >= minimum * len(group) for group in groups)


@given(holdings())
def test_the_minimum_is_met_exactly_where_halls_condition_allows_it(holding):
    counts, allowed, minimum = holding

    raised = raise_to_minimum(counts, allowed, minimum)

    assert (raised is not None) == can_be_met(counts, allowed, minimum)


@given(holdings())
def test_moves_keep_every_image_and_every_exclusion(holding):
    counts, allowed, minimum = holding

    raised = raise_to_minimum(counts, allowed, minimum)

    if raised is not None:
        np.testing.assert_array_equal(raised.sum(axis=0), counts.sum(axis=0))
        assert raised.min() >= 0
        assert (raised[~allowed] == 0).all()
        assert raised.sum(axis=1).min() >= minimum


def test_the_largest_holder_gives_from_its_most_frequent_stratum():
    counts = np.array([[0, 0], [3, 5], [4, 2]])

    raised = raise_to_minimum(counts, np.ones_like(counts, dtype=bool), 1)

    assert raised is not None
    assert raised.tolist() == [[0, 1], [3, 4], [4, 2]]


def test_images_pass_through_a_hospital_where_the_rich_one_has_nothing_suitable():
    counts = np.array([[0, 0], [1, 0], [0, 9]])
    allowed = np.array([[True, False], [True, True], [False, True]])

    raised = raise_to_minimum(counts, allowed, 1)

    assert raised is not None
    assert raised.tolist() == [[1, 0], [0, 1], [0, 8]]


def test_holdings_that_meet_the_minimum_are_left_alone_and_never_changed_in_place():
    counts = np.array([[2, 0], [0, 5]])
    poor = np.array([[0, 0], [4, 0]])

    untouched = raise_to_minimum(counts, counts > 0, 2)
    raise_to_minimum(poor, np.ones_like(poor, dtype=bool), 1)

    np.testing.assert_array_equal(untouched, counts)
    assert poor.tolist() == [[0, 0], [4, 0]]
