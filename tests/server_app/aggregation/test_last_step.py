"""The last step of the model is kept exactly, beside whatever moves it, and only where it is asked for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from federation.config import AggregationConfig
from federation.parameters import Parameters
from server_app.aggregation.last_step import LastStep, last_step_of, with_last_step
from server_app.aggregation.server_optimizer import Adam, Averaging, Momentum, ServerOptimizer
from server_app.aggregation.tail_averaging import TailAveraging
from tests.doubles import Hospitals
from tests.server_app.runs import applied, run, seconds

INNER: list[ServerOptimizer] = [
    Averaging(learning_rate=0.5),
    Momentum(learning_rate=0.5, momentum=0.9),
    Adam(learning_rate=0.1, momentum=0.9, beta2=0.9, adaptivity=1e-3),
    TailAveraging(inner=Momentum(learning_rate=0.5, momentum=0.9), rounds=5, length=2),
]


def start() -> Parameters:
    return {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}


def updates(number: int) -> list[Parameters]:
    generator = torch.Generator().manual_seed(number)
    return [{name: torch.randn(value.shape, generator=generator) for name, value in start().items()} for _ in range(2)]


@pytest.mark.parametrize("inner", INNER, ids=lambda inner: type(inner).__name__)
def test_step_is_the_difference_of_two_versions_and_the_versions_are_those_of_the_inner_optimizer(
    inner: ServerOptimizer,
) -> None:
    optimizer, found, expected = LastStep(inner=inner), start(), start()
    state, inner_state = optimizer.begin(found), inner.begin(expected)

    for number in range(5):
        before = {name: value.clone() for name, value in found.items()}
        optimizer.step(found, state, updates(number), [0.25, 0.5])
        inner.step(expected, inner_state, updates(number), [0.25, 0.5])
        step = last_step_of(state)
        assert step is not None
        assert list(step) == list(found)
        for name, value in found.items():
            assert torch.equal(value, expected[name])
            assert torch.equal(step[name], value - before[name])


def test_step_before_the_first_is_zero() -> None:
    step = last_step_of(LastStep(inner=Averaging()).begin(start()))

    assert step is not None
    assert [float(value.abs().sum()) for value in step.values()] == [0.0, 0.0]


@pytest.mark.parametrize("inner", INNER, ids=lambda inner: type(inner).__name__)
def test_state_without_a_step_has_none(inner: ServerOptimizer) -> None:
    assert last_step_of(inner.begin(start())) is None


def test_step_is_kept_where_its_angle_is_asked_for_only() -> None:
    inner = Averaging()

    assert with_last_step(AggregationConfig(), inner) is inner
    assert with_last_step(AggregationConfig(direction_scaling=True), inner) == LastStep(inner=inner)


def test_no_reach_is_promised_for_steps_are_state() -> None:
    assert LastStep(inner=Averaging()).reach(1.0, 1.0) == (math.inf, math.inf)


def test_update_against_the_last_step_weighs_nothing_and_one_along_it_all(tmp_path: Path) -> None:
    class Turning(Hospitals):
        def step(self, index: int, version: int) -> float:
            return -0.01 if index == 1 else 0.01

    settings: dict[str, Any] = {
        "aggregation__rule": "fedasync",
        "aggregation__rounds": 5,
        "aggregation__direction_scaling": True,
    }
    run(tmp_path, seconds(10, 25), Turning(), run__hospital_evaluation=False, **settings)

    factors = [(row["hospital"], row["factors"]["direction"]) for rows in applied(tmp_path).values() for row in rows]
    along, against = pytest.approx(1.0), pytest.approx(0.0, abs=1e-5)
    # Before the first step there is no direction, and none after an update that weighs nothing.
    assert [factor for _, factor in factors] == [1.0, along, against, along, along]
    assert [name for name, _ in factors].index("hospital-001") == 2
