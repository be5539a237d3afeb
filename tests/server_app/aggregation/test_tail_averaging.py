"""The last version as the mean of the last ones: exact, part of every checkpoint, and nothing before the end."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from federation.config import AggregationConfig
from server_app.aggregation.server_optimizer import Averaging, Momentum
from server_app.aggregation.tail_averaging import TailAveraging, with_tail_averaging
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from tests.doubles import Hospitals, configure


def iterate(optimizer: TailAveraging, steps: int) -> list[torch.Tensor]:
    parameters, versions = {"w": torch.tensor([1.0, -2.0])}, []
    state = optimizer.begin(parameters)
    for step in range(steps):
        update = {"w": torch.tensor([0.5, 0.25]) * (step + 1)}
        optimizer.step(parameters, state, [update], [1.0])
        versions.append(parameters["w"].clone())
    return versions


def test_last_version_is_the_mean_of_the_last_ones() -> None:
    inner = Momentum(learning_rate=0.7, momentum=0.9)
    plain = iterate(TailAveraging(inner=inner, rounds=100, length=1), 6)

    averaged = iterate(TailAveraging(inner=inner, rounds=6, length=3), 6)

    for number in range(5):
        torch.testing.assert_close(averaged[number], plain[number], rtol=0, atol=0)
    torch.testing.assert_close(averaged[5], torch.stack(plain[3:]).mean(dim=0))


def test_averaging_is_left_out_unless_asked_for() -> None:
    assert isinstance(with_tail_averaging(AggregationConfig()), Averaging)
    assert isinstance(with_tail_averaging(AggregationConfig(average_last=2)), TailAveraging)


def test_killed_run_averages_the_same_versions(tmp_path: Path) -> None:
    def settings(**more: object) -> dict[str, object]:
        return {"aggregation__rounds": 6, "aggregation__average_last": 4, "run__hospital_evaluation": False, **more}

    whole = simulate(configure(tmp_path / "a", **settings()), Hospitals().app(), [SiteTiming()] * 2)
    stopping = Hospitals()
    stopping.spoil = {0: _fail_at(4), 1: _fail_at(4)}
    with contextlib.suppress(KeyboardInterrupt):
        simulate(configure(tmp_path / "b", **settings()), stopping.app(), [SiteTiming()] * 2)
    resumed = simulate(configure(tmp_path / "b", **settings(run__resume=True)), Hospitals().app(), [SiteTiming()] * 2)

    assert (whole.model_version, resumed.model_version, resumed.resumed) == (6, 6, 1)
    first, second = (tmp_path / name / "run" / "model.safetensors" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def _fail_at(version: int):
    def spoil(answer):
        if answer.model_version == version:
            raise KeyboardInterrupt
        return answer

    return spoil
