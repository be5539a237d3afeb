"""Parameters are copied, never shared, and only what has the model's names, shapes, dtypes and finite values passes."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from federation.errors import RefusalCode, RefusalError
from federation.parameters import (
    Parameters,
    digest,
    is_finite,
    read_parameters,
    require_like,
    subtract,
    write_parameters,
)

FLOATS = st.lists(st.floats(width=32), min_size=1, max_size=20)


def small_parameters() -> Parameters:
    return {"first": torch.arange(6, dtype=torch.float32).reshape(2, 3), "second": torch.ones(2)}


def refusal_of(found: Parameters, expected: Parameters) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        require_like(found, expected)
    return caught.value


def test_parameters_read_are_those_of_the_state_dict_in_its_order() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    found = read_parameters(model)

    assert list(found) == list(model.state_dict())
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
    assert not any(value.requires_grad for value in found.values())


def test_parameters_read_do_not_follow_the_model() -> None:
    model = nn.Linear(3, 2)
    found = read_parameters(model)
    before = model.weight.detach().clone()

    with torch.no_grad():
        model.weight.add_(1)

    assert torch.equal(found["weight"], before)


def test_parameters_written_are_read_back_and_the_model_does_not_follow_them() -> None:
    model = nn.Linear(3, 2)
    given_values = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([7.0, 8.0])}

    write_parameters(model, given_values)
    given_values["bias"].zero_()

    assert torch.equal(model.weight, torch.arange(6.0).reshape(2, 3))
    assert torch.equal(model.bias, torch.tensor([7.0, 8.0]))


def test_difference_is_left_minus_right_per_name() -> None:
    left, right = {"a": torch.tensor([5.0]), "b": torch.tensor([1.0])}, {"b": torch.tensor([4.0]), "a": torch.ones(1)}

    assert {name: value.item() for name, value in subtract(left, right).items()} == {"a": 4.0, "b": -3.0}


@given(FLOATS)
def test_parameters_are_finite_exactly_when_every_value_is(values: list[float]) -> None:
    parameters = {"good": torch.ones(3), "drawn": torch.tensor(values, dtype=torch.float32)}

    assert is_finite(parameters) == all(map(math.isfinite, values))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_largest_float32_values_are_finite_although_their_sum_is_not(sign: float) -> None:
    largest = sign * torch.finfo(torch.float32).max

    assert is_finite({"a": torch.full((1000,), largest)})


def test_opposite_infinities_are_not_finite() -> None:
    assert not is_finite({"a": torch.tensor([float("inf"), float("-inf")])})


def test_empty_tensor_and_no_tensor_are_finite() -> None:
    assert is_finite({"a": torch.empty(0)})
    assert is_finite({})


def test_like_parameters_pass() -> None:
    require_like(small_parameters(), small_parameters())


def test_missing_and_unknown_names_are_named() -> None:
    found = {"first": torch.zeros(2, 3), "other": torch.zeros(2)}

    error = refusal_of(found, small_parameters())

    assert error.code is RefusalCode.WRONG_NAMES
    assert error.detail == "Expected 2 tensors, found 2; missing ['second'], not known ['other']."


def test_other_order_of_the_same_names_is_refused() -> None:
    parameters = small_parameters()

    error = refusal_of(dict(reversed(parameters.items())), parameters)

    assert error.code is RefusalCode.WRONG_NAMES
    assert error.detail.endswith("order differs.")


def test_shape_that_would_broadcast_is_refused() -> None:
    error = refusal_of(small_parameters() | {"second": torch.ones(1)}, small_parameters())

    assert (error.code, error.detail) == (RefusalCode.WRONG_SHAPE, "Expected second of shape (2,), found (1,).")


def test_other_dtype_is_refused() -> None:
    error = refusal_of(small_parameters() | {"second": torch.ones(2).double()}, small_parameters())

    assert error.code is RefusalCode.WRONG_DTYPE
    assert error.detail == "Expected second of torch.float32, found torch.float64."


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_tensor_that_is_not_finite_is_named(bad: float) -> None:
    error = refusal_of(small_parameters() | {"second": torch.tensor([1.0, bad])}, small_parameters())

    assert error.code is RefusalCode.NON_FINITE
    assert error.detail == "Expected finite values, found NaN or infinity in ['second']."


def test_shape_is_complained_about_before_values() -> None:
    found = {"first": torch.full((2, 3), math.nan), "second": torch.ones(3)}

    assert refusal_of(found, small_parameters()).code is RefusalCode.WRONG_SHAPE


def test_digest_is_the_sha256_of_names_shapes_dtypes_and_bytes() -> None:
    expected = hashlib.sha256(b"a|(2,)|torch.float32|" + np.array([1, 2], "<f4").tobytes()).hexdigest()

    assert digest({"a": torch.tensor([1.0, 2.0])}) == expected


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.tensor([1.0, 2.5])},
        {"b": torch.tensor([1.0, 2.0])},
        {"a": torch.tensor([[1.0, 2.0]])},
        {"a": torch.tensor([1.0, 2.0]).view(torch.int32)},
        {"a": torch.tensor([1.0]), "b": torch.tensor([2.0])},
    ],
)
def test_digest_changes_with_value_name_shape_dtype_and_division(other: Parameters) -> None:
    assert digest(other) != digest({"a": torch.tensor([1.0, 2.0])})


def test_digest_does_not_depend_on_the_layout_in_memory() -> None:
    image = torch.arange(24.0).reshape(1, 2, 3, 4)

    assert digest({"a": image.to(memory_format=torch.channels_last)}) == digest({"a": image})


def test_digest_of_a_tensor_without_values_is_that_of_its_name_and_shape() -> None:
    expected = hashlib.sha256(b"a|(0, 3)|torch.float32|").hexdigest()

    assert digest({"a": torch.from_numpy(np.empty((0, 3), "float32"))}) == expected
