"""A stream depends on the seed and its path and on nothing else, least of all on what was drawn before."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from federation.randomness import derive_seed, numpy_stream

# The separator of the elements is a control character that no name in the project contains.
NAMES = st.text(st.characters(blacklist_categories=("Cc", "Cs")), max_size=8)
PATHS = st.lists(st.one_of(st.integers(), NAMES), max_size=4)


@given(st.integers(), PATHS)
def test_seed_fits_every_generator(seed: int, path: list[int | str]) -> None:
    assert 0 <= derive_seed(seed, *path) < 2**63


@given(st.integers(), PATHS, st.integers(), PATHS)
def test_different_seeds_or_paths_give_different_seeds(
    seed: int, path: list[int | str], other_seed: int, other_path: list[int | str]
) -> None:
    assume((seed, path) != (other_seed, other_path))

    assert derive_seed(seed, *path) != derive_seed(other_seed, *other_path)


@pytest.mark.parametrize(
    ("left", "right"),
    [((1, "a"), (1, "a", "")), ((1, "ab"), (1, "a", "b")), ((1, 2), (1, "2")), ((1, "a", "b"), (1, "b", "a")),
     ((1, 23), (12, 3))],
)  # fmt: skip
def test_paths_that_look_alike_are_told_apart(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert derive_seed(*left) != derive_seed(*right)


def test_seed_is_the_upper_63_bits_of_the_sha256_of_the_path() -> None:
    digest = hashlib.sha256(b"5\x1fstr:training\x1fint:12").digest()

    assert derive_seed(5, "training", 12) == int.from_bytes(digest, "big") >> (256 - 63)


def test_streams_of_one_path_draw_the_same_numbers_whatever_others_draw() -> None:
    first = numpy_stream(3, "x").random(4)
    numpy_stream(3, "y").random(100)
    np.random.default_rng(0).random(100)

    np.testing.assert_array_equal(numpy_stream(3, "x").random(4), first)
    assert not np.array_equal(numpy_stream(3, "y").random(4), first)
