"""A plan is tried on images of noise: an error there is no answer about a private image."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from client_app.rehearsal import rehearse
from federation.config import ModelConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import SiteError, SiteErrorCode
from federation.models import build_model

CPU = torch.device("cpu")


def info_of(task: Task = Task.MULTICLASS, classes: int = 3, channels: int = 1) -> DatasetInfo:
    names = tuple(f"class {index}" for index in range(classes))
    return DatasetInfo(name="toy", task=task, class_names=names, channels=channels, height=8, width=8)


def plan(**settings: Any) -> TrainingConfig:
    return TrainingConfig(**{"device": "cpu", **settings})


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize(("classes", "channels"), [(2, 1), (3, 3), (20, 1)])
def test_sound_plan_passes_and_leaves_the_model_as_it_is(task: Task, classes: int, channels: int) -> None:
    info = info_of(task, classes, channels)
    model = build_model(ModelConfig(name="mlp"), info, seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    rehearse(model, info, plan(local_epochs=2, augmentation="shift-flip"), CPU)

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_model_that_cannot_be_trained_is_an_error(value: float) -> None:
    info = info_of()
    model = build_model(ModelConfig(name="mlp"), info, seed=0)
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = value

    with pytest.raises(SiteError, match="no private image was looked at") as refused:
        rehearse(model, info, plan(), CPU)

    assert refused.value.code is SiteErrorCode.TRAINING_FAILED


def test_training_that_stops_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("client_app.rehearsal.train_locally", run_out)

    with pytest.raises(SiteError, match="on images of noise") as refused:
        rehearse(build_model(ModelConfig(name="mlp"), info_of(), seed=0), info_of(), plan(), CPU)

    assert refused.value.code is SiteErrorCode.TRAINING_FAILED


def test_result_is_the_same_every_time() -> None:
    """What a rehearsal finds depends on nothing but model and plan, so that asking again tells nothing new."""
    info = info_of()
    found: list[str] = []
    for _ in range(3):
        torch.manual_seed(len(found))
        model = build_model(ModelConfig(name="mlp"), info, seed=0)
        try:
            rehearse(model, info, plan(optimizer="sgd", learning_rate=1e38, local_epochs=3), CPU)
        except SiteError:
            found.append("error")
        else:
            found.append("passes")

    assert len(set(found)) == 1
