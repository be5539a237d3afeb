"""The global model moves by the weighted mean, in a fixed order of additions, and never to something infinite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import RunFailedError
from federation.parameters import Parameters
from federation.records.tensors import decode_parameters
from server_app.aggregation.server_optimizer import Adam, Momentum
from server_app.global_model import GlobalModel

VALUES = st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3)


def parameters_of(*values: float) -> Parameters:
    return {"w": torch.tensor(values), "b": torch.tensor([[values[0]]])}


@given(VALUES, st.lists(st.tuples(VALUES, st.floats(0.1, 1000)), min_size=1, max_size=6))
def test_model_moves_by_the_weighted_mean(start: list[float], updates: list[tuple[list[float], float]]) -> None:
    model = GlobalModel(parameters_of(*start), version=4)

    model.apply([parameters_of(*values) for values, _ in updates], [weight for _, weight in updates])

    mean = np.average([values for values, _ in updates], axis=0, weights=[weight for _, weight in updates])
    np.testing.assert_allclose(model.parameters["w"].numpy(), np.array(start) + mean, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(model.parameters["b"].item(), start[0] + mean[0], rtol=1e-4, atol=1e-3)
    assert model.version == 5


def test_only_the_ratio_of_weights_counts() -> None:
    models = [GlobalModel(parameters_of(1.0, 2.0, 3.0), version=0) for _ in range(2)]
    updates = [parameters_of(1.0, 0.0, 0.0), parameters_of(0.0, 1.0, 0.0)]

    models[0].apply(updates, [1.0, 3.0])
    models[1].apply(updates, [1000.0, 3000.0])

    assert models[0].parameters["w"].tolist() == [1.25, 2.75, 3.0]
    assert torch.equal(models[0].parameters["w"], models[1].parameters["w"])


@pytest.mark.parametrize(
    ("values", "expected"),
    # A quarter of 2**28 swallows what is smaller than 4 in float32, so the sum tells in which order it was made.
    [([2.0**28, 1.0, -(2.0**28), 0.0], 0.0), ([2.0**28, -(2.0**28), 1.0, 0.0], 0.25), ([0.0, 1.0, 0.0, 1.0], 1.0)],
)
def test_updates_are_added_one_after_another_in_the_order_given(values: list[float], expected: float) -> None:
    model = GlobalModel({"w": torch.tensor([0.5])}, version=0)

    model.apply([{"w": torch.tensor([value])} for value in values], [1.0] * 4)

    assert model.parameters["w"].item() == expected


def test_order_of_names_in_an_update_does_not_matter() -> None:
    model = GlobalModel({"w": torch.zeros(1), "b": torch.zeros(1)}, version=0)

    model.apply([{"b": torch.tensor([2.0]), "w": torch.tensor([1.0])}], [1.0])

    assert {name: value.item() for name, value in model.parameters.items()} == {"w": 1.0, "b": 2.0}


def test_updates_are_only_read() -> None:
    update = {"w": torch.ones(2)}

    GlobalModel({"w": torch.zeros(2)}, version=0).apply([update, update], [1.0, 2.0])

    assert torch.equal(update["w"], torch.ones(2))


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_result_that_is_not_finite_fails_the_run_and_makes_no_version(value: float) -> None:
    model = GlobalModel({"w": torch.tensor([3e38])}, version=7)

    with pytest.raises(RunFailedError, match=r"Version 8 is not finite"):
        model.apply([{"w": torch.tensor([value])}], [1.0])

    assert model.version == 7


def test_state_that_is_not_finite_fails_the_run_and_leaves_model_and_state() -> None:
    optimizer = Adam(learning_rate=0.1, momentum=0.9, beta2=0.9, adaptivity=1e-3)
    model = GlobalModel({"w": torch.zeros(1)}, version=7, optimizer=optimizer)

    with pytest.raises(RunFailedError, match=r"Version 8 is not finite"):
        model.apply([{"w": torch.tensor([1e25])}], [1.0])

    assert model.version == 7
    assert {name: value.item() for name, value in model.optimizer_state.items()} == {
        "momentum/w": 0.0,
        "second-moment/w": pytest.approx(1e-6),
    }


def test_optimizer_goes_on_from_the_state_it_is_given() -> None:
    optimizer = Momentum(learning_rate=1.0, momentum=0.5)
    first = GlobalModel({"w": torch.zeros(1)}, version=0, optimizer=optimizer)
    first.apply([{"w": torch.ones(1)}], [1.0])

    second = GlobalModel(first.parameters, version=1, optimizer=optimizer, optimizer_state=first.optimizer_state)
    second.apply([{"w": torch.ones(1)}], [1.0])

    assert second.parameters["w"].item() == 1 + 1.5


def test_more_weights_than_updates_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        GlobalModel({"w": torch.zeros(1)}, version=0).apply([{"w": torch.zeros(1)}], [1.0, 1.0])


def test_broadcast_of_a_version_is_encoded_once_and_follows_the_next_version() -> None:
    model = GlobalModel({"w": torch.zeros(2)}, version=0)
    first = model.broadcast()

    again = model.broadcast()
    model.apply([{"w": torch.ones(2)}], [1.0])

    assert again is first
    assert torch.equal(decode_parameters(first)["w"], torch.zeros(2))
    assert torch.equal(decode_parameters(model.broadcast())["w"], torch.ones(2))
