"""The norm is the one of all tensors together, and clipping keeps it within the bound to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from client_app.perturbation.clipping import clip_jointly, joint_norm

VECTORS = arrays("float32", st.integers(0, 40), elements=st.floats(-1e6, 1e6, width=32)).map(
    lambda array: torch.from_numpy(array.copy())
)


def exact_norm(tensors: dict[str, torch.Tensor]) -> float:
    """Return the norm with numpy in float64 and an exact sum."""
    return math.sqrt(math.fsum(float(value) ** 2 for tensor in tensors.values() for value in tensor.flatten()))


@settings(deadline=None)
@given(st.lists(VECTORS, min_size=1, max_size=4))
def test_norm_is_that_of_one_long_vector(vectors: list[torch.Tensor]) -> None:
    assert joint_norm(vectors) == pytest.approx(np.linalg.norm(torch.cat(vectors).double().numpy()), rel=1e-12)


def test_norm_of_float32_values_neither_overflows_nor_vanishes() -> None:
    assert joint_norm([torch.full((4,), 3e38)]) == pytest.approx(6e38, rel=1e-6)
    assert joint_norm([torch.full((4,), 1e-30)]) == pytest.approx(2e-30, rel=1e-6)


def test_norm_of_many_small_values_loses_none_of_them() -> None:
    tensor = torch.full((3_000_000,), 1e-3)
    tensor[0] = 1e4

    assert joint_norm([tensor]) == pytest.approx(math.sqrt(1e8 + 2_999_999 * float(tensor[1]) ** 2), rel=1e-13)


@settings(deadline=None)
@given(st.lists(VECTORS, min_size=1, max_size=4), st.floats(1e-3, 1e3))
def test_clipped_norm_never_exceeds_the_bound_and_the_direction_stays(
    vectors: list[torch.Tensor], clip_norm: float
) -> None:
    tensors = {str(number): vector for number, vector in enumerate(vectors)}

    clipped = clip_jointly(tensors, clip_norm)

    norm = exact_norm(tensors)
    assert exact_norm(clipped) <= clip_norm
    for name, value in tensors.items():
        expected = value.double() * min(1.0, clip_norm / norm if norm else 1.0)
        torch.testing.assert_close(clipped[name].double(), expected, rtol=2e-6, atol=1e-12)


def test_vector_within_the_bound_keeps_every_bit() -> None:
    tensors = {"a": torch.tensor([0.3, 0.4]), "b": torch.zeros(2, 2)}

    clipped = clip_jointly(tensors, 0.51)

    assert all(torch.equal(clipped[name], tensors[name]) for name in tensors)
    assert clipped["a"] is not tensors["a"]


def test_rounding_to_float32_does_not_carry_the_norm_over_the_bound() -> None:
    generator = torch.Generator().manual_seed(3)

    norms = [
        exact_norm(clip_jointly({"w": torch.randn(7, generator=generator) * 5}, clip_norm))
        for clip_norm in np.linspace(0.5, 2.0, 300)
    ]

    assert all(norm <= bound for norm, bound in zip(norms, np.linspace(0.5, 2.0, 300), strict=True))
