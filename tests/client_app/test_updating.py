"""From the received model to the update that may leave: which training runs, and where noise is added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from client_app.dp_sgd import train_with_dp_sgd
from client_app.noise.simulated import SimulatedNoise
from client_app.noise.source import NoiseSource
from client_app.perturbation import perturb_update
from client_app.protection import Protection, plan_protection
from client_app.releasing import Bill, unprotected
from client_app.site import SimulatedSite
from client_app.training import train_locally
from client_app.updating import compute_update, load_model, protect
from federation.accounting.events import History
from federation.config import Configuration, DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, Task
from federation.errors import RefusalError, SiteError, SiteErrorCode
from federation.models import build_model
from federation.parameters import Parameters, read_parameters, subtract
from federation.records.tasks import TrainingTask
from tests.client_app.calls import make_images

INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b", "c"), channels=1, height=6, width=6)
IMAGES = make_images(30)
DATASET = Dataset(info=INFO, train=IMAGES, validation=IMAGES, test=IMAGES)
SITE = SimulatedSite(
    hospital_id="a", data=DataConfig(), partition=0, partitions=1, seed=0, run="run", run_seed=0,
    seeded_noise=True, state_dir=Path("/nowhere"),
)  # fmt: skip
CPU = torch.device("cpu")


class NoNoise:
    """Draws nothing: to ask it is an error."""

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> torch.Tensor:
        raise AssertionError(shape, stddev, device)

    def uniform(self, count: int) -> torch.Tensor:
        raise AssertionError(count)


def configuration(mechanism: str, **training: Any) -> Configuration:
    return Configuration.model_validate(
        {
            "privacy": {"mechanism": mechanism, "noise-multiplier": 0.0 if mechanism == "none" else 2.0},
            "model": {"name": "mlp", "hidden-units": 4},
            "training": {"device": "cpu", "batch-size": 10, **training},
        }
    )


def protection_of(settings: Configuration) -> Protection | None:
    if settings.privacy.mechanism == "none":
        return None
    return plan_protection(settings, settings.training, IMAGES, policy=None, before=History(), during=History())


def bill_for(settings: Configuration) -> Bill:
    protection = protection_of(settings)
    if protection is None:
        return unprotected("toy")
    return Bill(
        data_set="toy", mechanism=protection.mechanism, event=protection.event, delta=1e-5, cap=8.0, budget=8.0,
        account="linear",
    )  # fmt: skip


def task_of(settings: Configuration) -> TrainingTask:
    start = read_parameters(build_model(settings.model, INFO, seed=0))
    return TrainingTask(parameters=start, model_version=0, plan=settings.training, seed=7)


def update_of(settings: Configuration, noise: NoiseSource) -> Parameters:
    return compute_update(
        task_of(settings), settings, SITE, DATASET, protection=protection_of(settings), noise=noise
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", ["none", "update-gaussian"])
def test_plain_training_draws_no_noise(mechanism: str) -> None:
    settings = configuration(mechanism)
    model = load_model(settings, DATASET, task_of(settings).parameters)
    generator = torch.Generator().manual_seed(7)
    train_locally(model, IMAGES, INFO, settings.training, generator=generator, device=CPU)

    update = update_of(settings, NoNoise())

    expected = subtract(read_parameters(model), task_of(settings).parameters)
    assert all(torch.equal(update[name], expected[name]) for name in expected)


def test_dp_sgd_trains_with_the_planned_noise() -> None:
    settings = configuration("dp-sgd")
    model = load_model(settings, DATASET, task_of(settings).parameters)
    train_with_dp_sgd(
        model, IMAGES, INFO, settings.training, settings.privacy, noise_multiplier=2.0, noise=SimulatedNoise(3),
        generator=torch.Generator().manual_seed(7), device=CPU,
    )  # fmt: skip

    update = update_of(settings, SimulatedNoise(3))

    expected = subtract(read_parameters(model), task_of(settings).parameters)
    assert all(torch.equal(update[name], expected[name]) for name in expected)
    plain = update_of(configuration("none"), NoNoise())
    assert not any(torch.equal(update[name], plain[name]) for name in expected)


def test_whole_update_is_clipped_and_noised_before_it_may_leave() -> None:
    settings = configuration("update-gaussian")
    update = update_of(settings, NoNoise())

    released = protect(update, settings.privacy, bill_for(settings), SimulatedNoise(5))

    expected = perturb_update(update, privacy=settings.privacy, noise_multiplier=2.0, noise=SimulatedNoise(5))
    assert all(torch.equal(released[name], expected[name]) for name in expected)
    assert not any(torch.equal(released[name], update[name]) for name in expected)


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
def test_nothing_is_added_to_an_update_without_a_mechanism_or_after_dp_sgd(mechanism: str) -> None:
    settings = configuration(mechanism)
    update = {"weight": torch.full((3,), 100.0)}

    assert protect(update, settings.privacy, bill_for(settings), NoNoise()) == update


def diverging(value: float) -> Callable[..., None]:
    """Return a training that ends with `value` among the parameters."""

    def train(model: torch.nn.Module, *_: object, **__: object) -> None:
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] = value

    return train


DIVERGING = {
    "none": "client_app.updating.train_locally",
    "update-gaussian": "client_app.updating.train_locally",
    "dp-sgd": "client_app.dp_sgd.train_with_dp_sgd",
}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_training_that_diverges_without_a_mechanism_is_an_error(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    monkeypatch.setattr(DIVERGING["none"], diverging(value))

    with pytest.raises(SiteError) as refused:
        update_of(configuration("none"), NoNoise())

    assert refused.value.code is SiteErrorCode.NON_FINITE_UPDATE


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("mechanism", ["update-gaussian", "dp-sgd"])
def test_training_that_diverges_under_a_mechanism_is_an_update_of_zeros_that_only_the_log_tells_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mechanism: str, value: float
) -> None:
    monkeypatch.setattr(DIVERGING[mechanism], diverging(value))
    settings = configuration(mechanism)

    update = compute_update(
        task_of(settings), settings, replace(SITE, state_dir=tmp_path), DATASET,
        protection=protection_of(settings), noise=SimulatedNoise(0),
    )  # fmt: skip

    assert {name: value.shape for name, value in update.items()} == {
        name: value.shape for name, value in task_of(settings).parameters.items()
    }
    assert not any(value.any() for value in update.values())
    assert '"event": "diverged"' in (tmp_path / "a.log").read_text()


@pytest.mark.parametrize("mechanism", ["update-gaussian", "dp-sgd"])
def test_training_that_diverges_on_any_images_is_an_error_before_a_private_one_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    def look(*_: object, **__: object) -> None:
        raise AssertionError("Expected no look at private images.")

    monkeypatch.setattr("client_app.rehearsal.train_locally", diverging(float("nan")))
    monkeypatch.setattr(DIVERGING[mechanism], look)

    with pytest.raises(SiteError, match="on images of noise") as refused:
        update_of(configuration(mechanism), NoNoise())

    assert refused.value.code is SiteErrorCode.TRAINING_FAILED


@pytest.mark.parametrize(
    ("mechanism", "name"),
    [("none", "client_app.updating.train_locally"), ("dp-sgd", "client_app.dp_sgd.train_with_dp_sgd")],
)
def test_training_that_runs_out_of_memory_has_a_code(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, name: str
) -> None:
    def run_out(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(name, run_out)

    with pytest.raises(SiteError) as refused:
        update_of(configuration(mechanism), SimulatedNoise(0))

    assert refused.value.code is SiteErrorCode.TRAINING_FAILED


def test_foreign_parameters_are_refused() -> None:
    settings = configuration("none")

    with pytest.raises(RefusalError):
        load_model(settings, DATASET, {"weight": torch.zeros(3)})


def test_look_at_the_received_model_that_runs_out_of_memory_is_an_error_of_this_hospital(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("not enough memory")

    monkeypatch.setattr("client_app.updating.is_guarded", lambda *_: True)
    monkeypatch.setattr("client_app.updating.require_plausible", fail)

    with pytest.raises(SiteError, match="received model stopped: not enough memory") as refused:
        update_of(configuration("none"), NoNoise())

    assert refused.value.code is SiteErrorCode.TRAINING_FAILED
