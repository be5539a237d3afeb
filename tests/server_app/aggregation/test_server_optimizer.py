"""Each optimizer against formulas written out in float64 and against torch's own; the default is the plain mean."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.config import AggregationConfig
from federation.parameters import Parameters, finite_norm
from server_app.aggregation.server_optimizer import (
    Adam,
    Averaging,
    Momentum,
    ServerOptimizer,
    make_server_optimizer,
)

STEPS, HOSPITALS = 7, 3


def make_updates(seed: int = 0) -> list[tuple[list[Parameters], list[float]]]:
    """Return, for every step, the updates of some hospitals and their coefficients, which sum to 1."""
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Parameters:
        return {
            "w": torch.randn(4, 3, generator=generator) * 0.1,
            "b": torch.randn(3, generator=generator) * 0.1,
        }

    weights = torch.rand(STEPS, HOSPITALS, generator=generator) + 0.1
    coefficients = (weights / weights.sum(dim=1, keepdim=True)).tolist()
    return [([draw() for _ in range(HOSPITALS)], step) for step in coefficients]


def mean_of(updates: Sequence[Parameters], weights: Sequence[float], name: str) -> np.ndarray:
    return np.average([update[name].double().numpy() for update in updates], axis=0, weights=weights)


def start() -> Parameters:
    return {"w": torch.full((4, 3), 0.5), "b": torch.arange(3.0)}


def run(optimizer: ServerOptimizer, rounds: Sequence[tuple[list[Parameters], list[float]]]) -> Parameters:
    parameters = start()
    state = optimizer.begin(parameters)
    for updates, coefficients in rounds:
        optimizer.step(parameters, state, updates, coefficients)
    return parameters


@pytest.mark.parametrize("learning_rate", [1.0, 0.3])
def test_averaging_adds_the_weighted_mean_times_the_learning_rate(learning_rate: float) -> None:
    found = run(Averaging(learning_rate=learning_rate), make_updates())

    for name, value in start().items():
        expected = value.double().numpy() + learning_rate * sum(mean_of(*step, name) for step in make_updates())
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.integers(1, 10**6)), min_size=1, max_size=5))
def test_default_gives_the_bits_of_the_plain_mean(pairs: list[tuple[float, int]]) -> None:
    # The plain mean as the first server of this project added it: one update after another, weight over total.
    expected = torch.full((3,), 0.1)
    for value, weight in pairs:
        expected.add_(torch.full((3,), value), alpha=weight / sum(weight for _, weight in pairs))

    optimizer = make_server_optimizer(AggregationConfig())
    found = {"w": torch.full((3,), 0.1)}
    total = sum(weight for _, weight in pairs)
    optimizer.step(
        found, {}, ({"w": torch.full((3,), value)} for value, _ in pairs), [weight / total for _, weight in pairs]
    )

    assert torch.equal(found["w"], expected)
    assert optimizer.begin(found) == {}


@pytest.mark.parametrize(("momentum", "learning_rate"), [(0.9, 1.0), (0.5, 0.1), (0.0, 0.7)])
def test_momentum_is_that_of_torch(momentum: float, learning_rate: float) -> None:
    found = run(Momentum(learning_rate=learning_rate, momentum=momentum), make_updates())

    for name, value in start().items():
        variable = value.double().requires_grad_()
        reference = torch.optim.SGD([variable], lr=learning_rate, momentum=momentum)
        for step in make_updates():
            variable.grad = -torch.from_numpy(mean_of(*step, name))
            reference.step()
        torch.testing.assert_close(found[name].double(), variable.detach(), rtol=1e-5, atol=1e-6)


def test_momentum_is_the_formula_of_the_paper() -> None:
    found = run(Momentum(learning_rate=0.4, momentum=0.8), make_updates())

    for name, value in start().items():
        x, v = value.double().numpy(), np.zeros(value.shape)
        for step in make_updates():
            v = 0.8 * v + mean_of(*step, name)
            x = x + 0.4 * v
        np.testing.assert_allclose(found[name].numpy(), x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("adaptivity", [1e-3, 0.1])
@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.99), (0.0, 0.5), (0.7, 0.0)])
def test_adam_is_the_formula_of_the_paper(beta1: float, beta2: float, adaptivity: float) -> None:
    found = run(Adam(learning_rate=0.05, momentum=beta1, beta2=beta2, adaptivity=adaptivity), make_updates())

    for name, value in start().items():
        x = value.double().numpy()
        m, v = np.zeros(value.shape), np.full(value.shape, adaptivity**2)
        for step in make_updates():
            change = mean_of(*step, name)
            m = beta1 * m + (1 - beta1) * change
            v = beta2 * v + (1 - beta2) * change**2
            x = x + 0.05 * m / (np.sqrt(v) + adaptivity)
        np.testing.assert_allclose(found[name].numpy(), x, rtol=1e-5, atol=1e-6)


def test_adam_is_that_of_torch_once_its_bias_correction_is_taken_back() -> None:
    rate, beta1, beta2, adaptivity = 0.05, 0.9, 0.99, 1e-3
    found = run(Adam(learning_rate=rate, momentum=beta1, beta2=beta2, adaptivity=adaptivity), make_updates())

    for name, value in start().items():
        variable = value.double().requires_grad_()
        reference = torch.optim.Adam([variable], betas=(beta1, beta2))
        second = torch.full_like(variable, adaptivity**2).detach()
        reference.state[variable] = {
            "step": torch.tensor(0.0),
            "exp_avg": torch.zeros_like(second),
            "exp_avg_sq": second,
        }
        for number, step in enumerate(make_updates(), start=1):
            root = (1 - beta2**number) ** 0.5
            reference.param_groups[0] |= {"lr": rate * (1 - beta1**number) / root, "eps": adaptivity / root}
            variable.grad = -torch.from_numpy(mean_of(*step, name))
            reference.step()
        torch.testing.assert_close(found[name].double(), variable.detach(), rtol=1e-5, atol=1e-6)


KINDS = get_args(AggregationConfig.model_fields["server_optimizer"].annotation)


def make(kind: str) -> ServerOptimizer:
    return make_server_optimizer(AggregationConfig.model_validate({"server-optimizer": kind}))


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_state_are_moved_in_place_and_updates_are_only_read(kind: str) -> None:
    optimizer = make(kind)
    (updates, coefficients), *_ = make_updates()
    parameters = start()
    state = optimizer.begin(parameters)
    places = [value.data_ptr() for value in (*parameters.values(), *state.values())]
    before = [{name: value.clone() for name, value in tensors.items()} for tensors in (parameters, state, *updates)]

    optimizer.step(parameters, state, updates, coefficients)

    assert [value.data_ptr() for value in (*parameters.values(), *state.values())] == places
    moved = [[not torch.equal(value, kept[name]) for name, value in tensors.items()]
             for tensors, kept in zip((parameters, state, *updates), before, strict=True)]  # fmt: skip
    assert all(moved[0])
    assert all(moved[1])
    assert not any(itertools.chain(*moved[2:]))


@pytest.mark.parametrize("kind", KINDS)
def test_each_update_is_used_up_before_the_next_is_asked_for(kind: str) -> None:
    (updates, coefficients), *_ = make_updates()
    expected = run(make(kind), [(updates, coefficients)])
    only = {name: torch.empty_like(value) for name, value in updates[0].items()}

    def stream() -> Iterator[Parameters]:
        for update in updates:
            for name, value in update.items():
                only[name].copy_(value)
            yield only

    found = start()
    optimizer = make(kind)
    optimizer.step(found, optimizer.begin(found), stream(), coefficients)

    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_coefficients_than_updates_are_an_error(kind: str) -> None:
    optimizer, parameters = make(kind), start()
    (updates, coefficients), *_ = make_updates()

    with pytest.raises(ValueError, match="zip"):
        optimizer.step(parameters, optimizer.begin(parameters), updates, coefficients[:-1])


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(-1000, 1000), st.floats(-1000, 1000), st.floats(0, 10)), min_size=1, max_size=6),
    learning_rate=st.floats(0.01, 3),
    momentum=st.one_of(st.none(), st.floats(0, 1)),
)
def test_no_step_reaches_farther_than_was_said(
    steps: list[tuple[float, float, float]], learning_rate: float, momentum: float | None
) -> None:
    optimizer = (
        Averaging(learning_rate=learning_rate)
        if momentum is None
        else Momentum(learning_rate=learning_rate, momentum=momentum)
    )
    parameters = {"w": torch.zeros(2, dtype=torch.float64)}
    state, bound, state_bound = optimizer.begin(parameters), 0.0, 0.0

    for first, second, coefficient in steps:
        update = {"w": torch.tensor([first, second], dtype=torch.float64)}
        growth, state_bound = optimizer.reach(coefficient * finite_norm(update), state_bound)
        bound += growth
        optimizer.step(parameters, state, [update], [coefficient])

        assert finite_norm(parameters) <= bound * (1 + 1e-12)
        assert finite_norm(state) <= state_bound * (1 + 1e-12)


def test_moments_promise_no_reach() -> None:
    assert make("adam").reach(0.0, 0.0) == (math.inf, math.inf)


def test_settings_reach_the_optimizer() -> None:
    table = {"server-learning-rate": 0.2, "server-momentum": 0.3, "server-beta2": 0.4, "server-adaptivity": 0.5}

    def made(kind: str) -> ServerOptimizer:
        return make_server_optimizer(AggregationConfig.model_validate({"server-optimizer": kind, **table}))

    assert made("average") == Averaging(learning_rate=0.2)
    assert made("momentum") == Momentum(learning_rate=0.2, momentum=0.3)
    assert made("adam") == Adam(learning_rate=0.2, momentum=0.3, beta2=0.4, adaptivity=0.5)


def test_defaults_are_those_of_the_papers() -> None:
    settings = AggregationConfig()

    assert (settings.server_optimizer, settings.server_learning_rate) == ("average", 1.0)
    assert (settings.server_momentum, settings.server_beta2, settings.server_adaptivity) == (0.9, 0.99, 1e-3)
