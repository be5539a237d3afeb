"""Stand-ins for hospitals: a ClientApp that answers the protocol at once, without data, and can misbehave on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from federation.config import Configuration, flatten, parse_configuration
from federation.datasets.image_set import DatasetInfo, Task
from federation.metrics import Scores
from federation.records.answers import (
    HospitalScores,
    ModelUpdate,
    encode_enrolment,
    encode_hospital_scores,
    encode_model_update,
)
from federation.records.tasks import decode_evaluation_task, decode_training_task

INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=4, width=4)


Spoiler = Callable[[ModelUpdate], ModelUpdate | RecordDict | Error]


@dataclass
class Hospitals:
    """Scripted hospitals; each adds `step(hospital, version)` to every parameter.

    Attributes:
        examples: declared images per hospital index.
        spoil: per hospital index, what becomes of its update before it is encoded.
        info: per hospital index, data that differ from the others'.
        names: per hospital index, an id other than the usual.
        seeds: seeds received, per hospital and version.
        rates: learning rates received, per hospital and version.
        trained: (hospital id, version) in the order of training.
    """

    examples: dict[int, int] = field(default_factory=dict)
    spoil: dict[int, Spoiler] = field(default_factory=dict)
    info: dict[int, DatasetInfo] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    seeds: dict[tuple[str, int], int] = field(default_factory=dict)
    rates: dict[tuple[str, int], float] = field(default_factory=dict)
    trained: list[tuple[str, int]] = field(default_factory=list)

    def step(self, index: int, version: int) -> float:
        """Return what hospital `index` adds to every parameter of `version`."""
        return (index + 1) * 0.01 + version * 0.001

    def app(self) -> ClientApp:
        """Return the ClientApp that plays all of them."""
        app = ClientApp()
        app.query()(self._enrol)
        app.train()(self._train)
        app.evaluate()(self._evaluate)
        return app

    def _id(self, context: Context) -> tuple[int, str]:
        index = int(context.node_config["partition-id"])
        return index, self.names.get(index, f"hospital-{index:03d}")

    def _enrol(self, message: Message, context: Context) -> Message:
        index, name = self._id(context)
        content = encode_enrolment(name, self.examples.get(index, 10), self.info.get(index, INFO))
        return Message(content, reply_to=message)

    def _train(self, message: Message, context: Context) -> Message:
        index, name = self._id(context)
        task = decode_training_task(message.content)
        self.seeds[name, task.model_version] = task.seed
        self.rates[name, task.model_version] = task.plan.learning_rate
        self.trained.append((name, task.model_version))
        step = self.step(index, task.model_version)
        update = {key: torch.full_like(value, step) for key, value in task.parameters.items()}
        answer: Any = ModelUpdate(
            hospital_id=name,
            model_version=task.model_version,
            examples=self.examples.get(index, 10),
            update=update,
        )
        answer = self.spoil.get(index, lambda same: same)(answer)
        if isinstance(answer, ModelUpdate):
            answer = encode_model_update(answer)
        return Message(answer, reply_to=message)

    def _evaluate(self, message: Message, context: Context) -> Message:
        index, name = self._id(context)
        task = decode_evaluation_task(message.content)
        scores = Scores(accuracy=0.5 + index / 100, auroc=None, loss=None, examples=10)
        answer = HospitalScores(hospital_id=name, model_version=task.model_version, split=task.split, scores=scores)
        return Message(encode_hospital_scores(answer), reply_to=message)


def configure(folder: Path, **settings: Any) -> Configuration:
    """Return a configuration for fast tests: runs below `folder`, a tiny network, no data on the server.

    Keyword `aggregation__rounds=3` sets `aggregation.rounds`, with hyphens for single underscores.
    """
    flat = dict(flatten(Configuration()))
    flat |= {"run.root": str(folder), "run.central-evaluation": False, "model.name": "mlp", "model.hidden-units": 2}
    for key, value in settings.items():
        table, name = key.split("__")
        flat[f"{table}.{name.replace('_', '-')}"] = value
    return parse_configuration(flat)


def changed(**fields: Any) -> Callable[[ModelUpdate], ModelUpdate]:
    """Return a spoiler that replaces `fields` of the update."""
    return lambda answer: replace(answer, **fields)
