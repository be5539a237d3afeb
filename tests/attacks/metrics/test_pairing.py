"""Pairs are those that trying all of them gives, and a candidate that is not finite is never one of a pair."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.metrics.images import Images
from attacks.metrics.pairing import mean_squared_errors, pair_by_best, pair_by_hungarian, pair_by_oracle
from federation.errors import DataError
from tests.attacks.metrics.made_up_images import make_images, make_nothing

thorough = settings(max_examples=40, deadline=None)
SMALL = (1, 2, 2)


def error_of(real: Images, candidate: Images) -> float:
    return float(np.mean((real - np.clip(candidate, 0, 1)) ** 2))


def least_sum(real: Images, candidates: Images) -> float:
    """Return the least sum of errors over all ways to pair as many as can be paired."""
    few, many = (real, candidates) if len(real) <= len(candidates) else (candidates, real)
    ways = permutations(range(len(many)), len(few))
    return min(sum(error_of(few[i], many[j]) for i, j in enumerate(way)) for way in ways)


@thorough
@given(real=st.integers(1, 5), candidates=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_hungarian_pairs_have_the_least_sum_of_all_permutations(real: int, candidates: int, seed: int) -> None:
    images, found = make_images(real, seed, shape=SMALL), make_images(candidates, seed + 1, shape=SMALL)

    pairing = pair_by_hungarian(images, found)

    pairs = [(n, j) for n, j in enumerate(pairing.candidate_of) if j >= 0]
    assert len(pairs) == min(real, candidates) == len({j for _, j in pairs})
    total = sum(error_of(images[n], found[j]) for n, j in pairs)
    assert total == pytest.approx(least_sum(images, found), rel=1e-12)


@thorough
@given(count=st.integers(1, 12), extra=st.integers(0, 5), seed=st.integers(0, 10**6))
def test_hungarian_finds_shuffled_copies_among_empty_candidates(count: int, extra: int, seed: int) -> None:
    real = make_images(count, seed, shape=SMALL)
    order = np.random.default_rng(seed).permutation(count + extra)
    candidates = np.concatenate([real, make_nothing(extra, shape=SMALL)])[order]

    pairing = pair_by_hungarian(real, candidates)

    assert np.array_equal(pairing.select(candidates), real)


def test_hungarian_gives_a_candidate_away_once_and_best_repeats_it() -> None:
    real = np.stack([np.full(SMALL, 0.5), np.full(SMALL, 0.6)])
    candidates = np.stack([np.full(SMALL, 0.0), np.full(SMALL, 0.55)])

    assert sorted(pair_by_hungarian(real, candidates).candidate_of) == [0, 1]
    assert pair_by_best(real, candidates).candidate_of.tolist() == [1, 1]


@thorough
@given(real=st.integers(1, 6), candidates=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_best_is_the_candidate_with_the_least_error(real: int, candidates: int, seed: int) -> None:
    images, found = make_images(real, seed, shape=SMALL), 2 * make_images(candidates, seed + 1, shape=SMALL)

    pairing = pair_by_best(images, found)

    expected = [min(range(candidates), key=lambda j: error_of(image, found[j])) for image in images]
    assert pairing.candidate_of.tolist() == expected


@pytest.mark.parametrize("pair", [pair_by_hungarian, pair_by_best])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_candidate_with_one_bad_pixel_is_left_out_and_the_others_stay_paired(pair, value: float) -> None:
    real = make_images(3, 0, shape=SMALL)
    candidates = np.concatenate([real[:1], real])
    candidates[0, 0, 0, 0] = value

    assert pair(real, candidates).candidate_of.tolist() == [1, 2, 3]


@pytest.mark.parametrize("pair", [pair_by_hungarian, pair_by_best])
@pytest.mark.parametrize("count", [0, 2])
def test_attack_that_found_nothing_pairs_nothing(pair, count: int) -> None:
    real = make_images(3, 0, shape=SMALL)

    pairing = pair(real, make_nothing(count, shape=SMALL))

    assert pairing.candidate_of.tolist() == [-1, -1, -1]
    assert np.isnan(pairing.select(make_nothing(count, shape=SMALL))).all()


def test_hungarian_leaves_real_images_over_where_candidates_are_few() -> None:
    real = make_images(3, 0, shape=SMALL)

    pairing = pair_by_hungarian(real, real[2:])

    assert pairing.candidate_of.tolist() == [-1, -1, 0]


def test_every_pairing_carries_its_name() -> None:
    real = make_images(2, 0, shape=SMALL)

    pairings = [pair_by_oracle(np.arange(2)), pair_by_hungarian(real, real), pair_by_best(real, real)]

    assert [pairing.name for pairing in pairings] == ["oracle", "hungarian", "best"]


def test_oracle_hands_out_the_given_positions_and_nothing_for_minus_one() -> None:
    candidates = make_images(3, 0, shape=SMALL)

    chosen = pair_by_oracle(np.array([2, -1, 2])).select(candidates)

    assert np.array_equal(chosen[[0, 2]], candidates[[2, 2]])
    assert np.isnan(chosen[1]).all()


@pytest.mark.parametrize("positions", [np.array([0, -2]), np.array([0.0, 1.0]), np.array([[0, 1]])])
def test_oracle_refuses_positions_that_are_none(positions: np.ndarray) -> None:
    with pytest.raises(DataError, match="one position >= -1 an image"):
        pair_by_oracle(positions)


def test_pair_with_a_candidate_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DataError, match="below 2, found 2"):
        pair_by_oracle(np.array([0, 2])).select(make_images(2, 0))


def test_errors_are_those_of_clamped_candidates_and_infinite_for_unusable_ones() -> None:
    real = make_images(3, 0, shape=SMALL)
    candidates = np.concatenate([5 * make_images(2, 1, shape=SMALL), make_nothing(1, shape=SMALL)])

    errors = mean_squared_errors(real, candidates)

    assert errors[:, :2] == pytest.approx(np.array([[error_of(image, c) for c in candidates[:2]] for image in real]))
    assert np.isposinf(errors[:, 2]).all()
