"""Norms and products over all tensors, against numpy in double precision; what is not finite has no norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import RefusalCode, RefusalError
from federation.parameters import Parameters, finite_norm, inner_product, require_structure

LARGEST = float(torch.finfo(torch.float32).max)
# Squares of smaller values may be lost in float32, which is why a norm below 1e-19 counts as none.
ORDINARY = st.floats(2.0**-40, 2.0**40, width=32)
SIGNED = st.one_of(st.just(0.0), ORDINARY, ORDINARY.map(lambda value: -value))
VECTORS = st.lists(SIGNED, min_size=1, max_size=12)


def split(values: list[float]) -> Parameters:
    """Return `values` in tensors of several shapes."""
    vector = torch.tensor(values, dtype=torch.float32)
    cut = max(1, len(values) // 2)
    return {"scalar": vector[0].clone(), "empty": torch.empty(0, 3), "a": vector[1:cut], "b": vector[cut:, None]}


@settings(deadline=None)
@given(VECTORS)
def test_norm_is_that_of_numpy_over_all_tensors(values: list[float]) -> None:
    assert finite_norm(split(values)) == pytest.approx(np.linalg.norm(np.array(values, "float64")), rel=1e-6)


@settings(deadline=None)
@given(st.lists(st.tuples(SIGNED, SIGNED), min_size=1, max_size=12))
def test_product_is_that_of_numpy_over_all_tensors(pairs: list[tuple[float, float]]) -> None:
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))

    scale = np.abs(np.array(left, "float64")) @ np.abs(np.array(right, "float64"))
    expected = np.array(left, "float64") @ np.array(right, "float64")
    assert inner_product(split(left), split(right)) == pytest.approx(expected, abs=1e-6 * scale)


def test_product_goes_by_name_and_not_by_place() -> None:
    left = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([10.0])}
    right = {"b": torch.tensor([100.0]), "a": torch.tensor([3.0, 4.0])}

    assert inner_product(left, right) == 11.0 + 1000.0


def test_norm_does_not_depend_on_the_layout_in_memory() -> None:
    image = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))

    moved = {"a": image.to(memory_format=torch.channels_last)}

    assert finite_norm(moved) == pytest.approx(finite_norm({"a": image}), rel=1e-6)
    assert inner_product(moved, {"a": image}) == pytest.approx(finite_norm({"a": image}) ** 2, rel=1e-5)


@pytest.mark.parametrize("value", [1e20, -3e30, LARGEST])
def test_norm_of_values_whose_squares_overflow_is_found_in_double_precision(value: float) -> None:
    parameters = {"a": torch.full((10,), value), "b": torch.ones(2)}

    assert finite_norm(parameters) == pytest.approx(math.sqrt(10) * abs(value), rel=1e-6)


def test_norm_of_many_values_keeps_its_first_five_digits() -> None:
    values = torch.randn(1_000_003, generator=torch.Generator().manual_seed(1))

    assert finite_norm({"a": values}) == pytest.approx(float(values.double().norm()), rel=1e-5)


@settings(deadline=None)
@given(VECTORS, st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(0, 11))
def test_one_value_that_is_not_finite_is_enough(values: list[float], bad: float, place: int) -> None:
    values[place % len(values)] = bad

    with pytest.raises(RefusalError) as caught:
        finite_norm(split(values))

    assert caught.value.code is RefusalCode.NON_FINITE


@pytest.mark.parametrize("other", [1.0, LARGEST, math.inf])
def test_tensor_that_is_not_finite_is_named_and_no_other(other: float) -> None:
    parameters = {"fine": torch.full((3,), LARGEST), "bad": torch.tensor([math.nan, other])}

    with pytest.raises(RefusalError, match=r"NaN or infinity in \['bad'\]\."):
        finite_norm(parameters)


def test_nothing_has_no_norm() -> None:
    assert finite_norm({}) == 0.0
    assert finite_norm({"a": torch.empty(0)}) == 0.0


def test_structure_says_nothing_about_values() -> None:
    require_structure({"a": torch.tensor([math.nan])}, {"a": torch.zeros(1)})


CHECKS: list[Callable[[Parameters], object]] = [finite_norm, lambda update: require_structure(update, update)]


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_looked_at_is_only_read(check: Callable[[Parameters], object]) -> None:
    values = {"a": torch.tensor([1.0, LARGEST]), "b": torch.ones(2, 2).t()}
    before = [value.clone() for value in values.values()]

    check(values)

    assert all(torch.equal(kept, value) for kept, value in zip(before, values.values(), strict=True))


def test_longer_vectors_have_no_smaller_norms() -> None:
    norms = [finite_norm({"a": torch.ones(length)}) for length in range(1, 40)]

    assert norms == pytest.approx([math.sqrt(length) for length in range(1, 40)])
    assert all(shorter < longer for shorter, longer in pairwise(norms))
