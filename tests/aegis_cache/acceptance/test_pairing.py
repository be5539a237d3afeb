"""Pairs of synthetic and private images, against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis_cache.acceptance.pairing import pair


def draw(count: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))


def brute(candidates: torch.Tensor, references: torch.Tensor) -> np.ndarray:
    left, right = candidates.double().numpy(), references.double().numpy()
    return ((left[:, None] - right[None]) ** 2).sum(axis=2)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 10))
def test_nearest_is_the_smallest_squared_distance(candidates: int, references: int, seed: int) -> None:
    left, right = draw(candidates, seed), draw(references, seed + 100)

    found = pair(left, right, "nearest")

    np.testing.assert_allclose(found.numpy(), brute(left, right).min(axis=1), rtol=1e-6, atol=1e-9)


@given(st.integers(1, 5), st.integers(0, 20))
@settings(max_examples=30)
def test_optimal_pairs_have_the_least_sum_of_all_assignments(count: int, seed: int) -> None:
    left, right = draw(count, seed), draw(count + 1, seed + 100)
    costs = brute(left, right)
    least = min(
        sum(costs[row, column] for row, column in enumerate(chosen))
        for chosen in itertools.permutations(range(count + 1), count)
    )

    found = pair(left, right, "optimal")

    assert float(found.sum()) == pytest.approx(least, rel=1e-6)


def test_a_generator_that_repeats_one_good_image_passes_nearest_but_not_optimal_pairs() -> None:
    references = draw(20, 1)
    repeated = references[:1].repeat(20, 1)

    assert float(pair(repeated, references, "nearest").max()) == 0
    assert float(pair(repeated, references, "optimal").median()) > 0.1


def test_more_candidates_than_references_are_all_paired() -> None:
    found = pair(draw(7, 1), draw(3, 2), "optimal")

    assert found.shape == (7,)
    assert (found >= 0).all()


@pytest.mark.parametrize("pairing", ["nearest", "optimal"])
def test_no_candidates_have_no_distances(pairing: str) -> None:
    assert len(pair(draw(0, 1), draw(3, 2), pairing)) == 0  # type: ignore[arg-type]
