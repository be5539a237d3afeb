"""The global model moves in place by a sum of updates, in a fixed order, and never to something infinite."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import RunFailedError
from federation.parameters import Parameters, finite_norm, is_finite
from federation.records.tensors import decode_parameters
from server_app.aggregation.server_optimizer import Adam, Averaging, Momentum, ServerOptimizer
from server_app.global_model import GlobalModel

VALUES = st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3)
LARGEST = float(torch.finfo(torch.float32).max)


def parameters_of(*values: float) -> Parameters:
    return {"w": torch.tensor(values), "b": torch.tensor([[values[0]]])}


def apply(
    model: GlobalModel, updates: Sequence[Parameters], coefficients: Sequence[float], norm: float = math.inf
) -> None:
    model.apply([lambda update=update: update for update in updates], coefficients, norm=norm)  # type: ignore[misc]


@settings(deadline=None)
@given(VALUES, st.lists(st.tuples(VALUES, st.floats(0, 10)), min_size=1, max_size=6))
def test_model_moves_by_the_sum_of_coefficient_times_update(
    start: list[float], updates: list[tuple[list[float], float]]
) -> None:
    model = GlobalModel(parameters_of(*start), version=4)

    apply(model, [parameters_of(*values) for values, _ in updates], [coefficient for _, coefficient in updates])

    moved = np.array(start) + sum(coefficient * np.array(values) for values, coefficient in updates)
    np.testing.assert_allclose(model.parameters["w"].numpy(), moved, rtol=1e-5, atol=5e-3)
    np.testing.assert_allclose(model.parameters["b"].item(), moved[0], rtol=1e-5, atol=5e-3)
    assert model.version == 5


def test_parameters_are_moved_where_they_are() -> None:
    parameters = parameters_of(1.0, 2.0, 3.0)
    model = GlobalModel(parameters, version=0)

    apply(model, [parameters_of(4.0, 0.0, 0.0), parameters_of(0.0, 4.0, 0.0)], [0.25, 0.5])

    assert model.parameters is parameters
    assert parameters["w"].tolist() == [2.0, 4.0, 3.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    # A quarter of 2**28 swallows what is smaller than 4 in float32, so the sum tells in which order it was made.
    [([2.0**28, 1.0, -(2.0**28), 0.0], 0.0), ([2.0**28, -(2.0**28), 1.0, 0.0], 0.25), ([0.0, 1.0, 0.0, 1.0], 1.0)],
)
def test_updates_are_added_one_after_another_in_the_order_given(values: list[float], expected: float) -> None:
    model = GlobalModel({"w": torch.tensor([0.5])}, version=0)

    apply(model, [{"w": torch.tensor([value])} for value in values], [0.25] * 4)

    assert model.parameters["w"].item() == expected


def test_update_is_loaded_when_its_turn_comes_and_not_kept() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def load() -> Parameters:
        assert not any(reference() is not None for reference in alive[:-1])
        value = torch.ones(2)
        alive.append(weakref.ref(value))
        return {"w": value}

    GlobalModel({"w": torch.zeros(2)}, version=0).apply([load] * 4, [1.0] * 4)

    assert [reference() for reference in alive] == [None] * 4


def test_order_of_names_in_an_update_does_not_matter() -> None:
    model = GlobalModel({"w": torch.zeros(1), "b": torch.zeros(1)}, version=0)

    apply(model, [{"b": torch.tensor([2.0]), "w": torch.tensor([1.0])}], [1.0])

    assert {name: value.item() for name, value in model.parameters.items()} == {"w": 1.0, "b": 2.0}


def test_updates_are_only_read() -> None:
    update = {"w": torch.ones(2)}

    apply(GlobalModel({"w": torch.zeros(2)}, version=0), [update, update], [1.0, 2.0])

    assert torch.equal(update["w"], torch.ones(2))


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_result_that_is_not_finite_fails_the_run_and_makes_no_version(value: float) -> None:
    model = GlobalModel({"w": torch.tensor([3e38])}, version=7)

    with pytest.raises(RunFailedError, match=r"Version 8 is not finite"):
        apply(model, [{"w": torch.tensor([value])}], [1.0])

    assert (model.version, model.is_whole) == (7, False)


def test_state_that_is_not_finite_fails_the_run_and_makes_no_version() -> None:
    optimizer = Adam(learning_rate=0.1, momentum=0.9, beta2=0.9, adaptivity=1e-3)
    model = GlobalModel({"w": torch.zeros(1)}, version=7, optimizer=optimizer)

    with pytest.raises(RunFailedError, match=r"Version 8 is not finite"):
        apply(model, [{"w": torch.tensor([1e25])}], [1.0])

    assert (model.version, model.is_whole) == (7, False)


def test_step_that_breaks_off_leaves_no_whole_model() -> None:
    def fail() -> Parameters:
        raise OSError("gone")

    model = GlobalModel({"w": torch.zeros(1)}, version=7)
    with pytest.raises(OSError, match="gone"):
        model.apply([fail], [1.0])

    assert (model.version, model.is_whole) == (7, False)


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    looks = [0]

    def look(parameters: Parameters) -> float:
        looks[0] += 1
        return finite_norm(parameters)

    monkeypatch.setattr("server_app.global_model.finite_norm", look)
    return looks


@pytest.mark.parametrize("optimizer", [Averaging(), Momentum(learning_rate=1.0, momentum=0.9)])
def test_model_that_cannot_overflow_is_not_looked_through(
    monkeypatch: pytest.MonkeyPatch, optimizer: ServerOptimizer
) -> None:
    looks = count_looks(monkeypatch)
    model = GlobalModel(parameters_of(1.0, 2.0, 3.0), version=0, optimizer=optimizer)

    for _ in range(5):
        apply(model, [parameters_of(1.0, 0.0, 0.0)], [1.0], norm=2.0)

    assert looks == [2]  # The first version only: its parameters and its state.


@pytest.mark.parametrize("norm", [math.inf, math.nan, 1e37])
def test_model_of_unknown_or_great_reach_is_looked_through(monkeypatch: pytest.MonkeyPatch, norm: float) -> None:
    looks = count_looks(monkeypatch)
    model = GlobalModel(parameters_of(1.0, 2.0, 3.0), version=0)

    for _ in range(5):
        apply(model, [parameters_of(1.0, 0.0, 0.0)], [1.0], norm=norm)

    assert looks == [10]


NORMS = st.one_of(st.floats(0, LARGEST, width=32), st.floats(2.0**120, LARGEST, width=32))


@settings(deadline=None)
@given(
    NORMS,
    st.lists(st.tuples(NORMS, st.booleans(), st.floats(0, 2)), min_size=1, max_size=12),
    st.sampled_from([Averaging(), Momentum(learning_rate=1.5, momentum=0.9)]),
)
def test_whatever_bounds_are_kept_no_version_is_ever_not_finite(
    start: float, steps: list[tuple[float, bool, float]], optimizer: ServerOptimizer
) -> None:
    model = GlobalModel({"w": torch.tensor([start, 0.0])}, version=0, optimizer=optimizer)

    for value, negative, coefficient in steps:
        update = {"w": torch.tensor([-value if negative else value, value])}
        norm = coefficient * finite_norm(update)
        before = model.version
        try:
            apply(model, [update], [coefficient], norm=norm)
        except RunFailedError:
            assert not (is_finite(model.parameters) and is_finite(model.optimizer_state))
            assert model.version == before
            return
        assert is_finite(model.parameters)
        assert is_finite(model.optimizer_state)
        assert model.version == before + 1


def test_optimizer_goes_on_from_the_state_it_is_given() -> None:
    optimizer = Momentum(learning_rate=1.0, momentum=0.5)
    first = GlobalModel({"w": torch.zeros(1)}, version=0, optimizer=optimizer)
    apply(first, [{"w": torch.ones(1)}], [1.0])

    second = GlobalModel(first.parameters, version=1, optimizer=optimizer, optimizer_state=first.optimizer_state)
    apply(second, [{"w": torch.ones(1)}], [1.0])

    assert second.parameters["w"].item() == 1 + 1.5


def test_more_coefficients_than_updates_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        apply(GlobalModel({"w": torch.zeros(1)}, version=0), [{"w": torch.zeros(1)}], [1.0, 1.0])


def test_broadcast_of_a_version_is_encoded_once_and_follows_the_next_version() -> None:
    model = GlobalModel({"w": torch.zeros(2)}, version=0)
    first = model.broadcast()

    again = model.broadcast()
    apply(model, [{"w": torch.ones(2)}], [1.0])

    assert again is first
    assert torch.equal(decode_parameters(first)["w"], torch.zeros(2))
    assert torch.equal(decode_parameters(model.broadcast())["w"], torch.ones(2))


def test_forgotten_broadcast_is_encoded_again_and_no_other() -> None:
    model = GlobalModel({"w": torch.ones(2)}, version=3)
    first = model.broadcast()

    model.forget_broadcast()

    assert model.broadcast() is not first
    assert torch.equal(decode_parameters(model.broadcast())["w"], torch.ones(2))
