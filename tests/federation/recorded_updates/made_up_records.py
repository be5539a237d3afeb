"""Recorded updates of a small `mlp` with numbers nobody trained."""

from __future__ import annotations

from pathlib import Path

import torch

from federation.accounting.events import GaussianRelease, Relation, Unit
from federation.config import ModelConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, Task
from federation.models import build_model
from federation.parameters import Parameters, read_parameters
from federation.recorded_updates.folder import UpdateFolder
from federation.recorded_updates.metadata import Origin, RecordedData
from federation.records.answers import ModelUpdate
from federation.records.declarations import Declaration

INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=4, width=5)
MODEL = ModelConfig(name="mlp", hidden_units=2)
ORIGIN = Origin(
    run="run",
    model=MODEL,
    data=RecordedData.of(INFO, name="folder"),
    training=TrainingConfig(optimizer="sgd", learning_rate=0.25, local_epochs=3, batch_size=7),
)
DECLARATION = Declaration(
    mechanism="update-gaussian",
    relation=Relation.ZERO_OUT,
    unit=Unit.UPDATE,
    clip_norm=0.5,
    event=GaussianRelease(noise_multiplier=24.22),
    delta=1e-5,
    account="linear",
    spent=0.2,
    cap=8.0,
    releases=1,
)


def make_model(seed: int = 0) -> Parameters:
    return read_parameters(build_model(MODEL, INFO, seed=seed))


def make_answer(
    hospital_id: str = "north", version: int = 3, *, seed: int = 1, declaration: Declaration | None = None
) -> ModelUpdate:
    generator = torch.Generator().manual_seed(seed)
    update = {name: torch.randn(value.shape, generator=generator) for name, value in make_model().items()}
    return ModelUpdate(
        hospital_id=hospital_id, model_version=version, examples=60, update=update, declaration=declaration
    )


def record(folder: Path, answer: ModelUpdate | None = None, *, model_seed: int = 0) -> Path:
    """Record one update and return where its metadata lie."""
    kept, answer = UpdateFolder(folder), answer or make_answer()
    model = kept.keep_model(answer.model_version, make_model(model_seed))
    return kept.keep_update(answer, ORIGIN, model)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
