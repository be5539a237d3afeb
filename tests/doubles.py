"""Stand-ins for hospitals: a ClientApp that answers the protocol at once, without data, and can misbehave on demand.

Under a mechanism they keep books in memory and declare honestly, a task asked again as it was the first time. Under
two-phase release they keep their result in memory until the decision, and book it only when it is released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from federation.accounting.accounts import account_of
from federation.accounting.events import GaussianRelease, History, Relation, Unit
from federation.config import Configuration, flatten, parse_configuration
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import SiteErrorCode
from federation.metrics import Scores
from federation.records.answers import (
    Discarded,
    HospitalScores,
    ModelUpdate,
    Readiness,
    encode_discarded,
    encode_enrolment,
    encode_hospital_scores,
    encode_model_update,
    encode_readiness,
)
from federation.records.declarations import Declaration
from federation.records.tasks import decode_decision, decode_evaluation_task, decode_training_task

INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=4, width=4)


Spoiler = Callable[[ModelUpdate], ModelUpdate | RecordDict | Error]


@dataclass
class Hospitals:
    """Scripted hospitals; each adds `step(hospital, version)` to every parameter.

    Attributes:
        examples: declared images per hospital index.
        spoil: per hospital index, what becomes of its update before it is encoded, under two-phase release at that.
        info: per hospital index, data that differ from the others'.
        names: per hospital index, an id other than the usual.
        seeds: seeds received, per hospital and version.
        rates: learning rates received, per hospital and version.
        trained: (hospital id, version) in the order of training.
        caps: per hospital index, epsilon that it spends on each of its splits at most; 8 unless given.
        noise: per hospital index, its noise multiplier; 24.22 unless given, which costs 0.2 by the linear account.
        books: per hospital id and split, the versions released with their noise multipliers, in order.
        pending: per hospital id, the result that it keeps under two-phase release until the decision.
        discarded: (hospital id, version) of every result that it was told to throw away, in order.
    """

    examples: dict[int, int] = field(default_factory=dict)
    spoil: dict[int, Spoiler] = field(default_factory=dict)
    info: dict[int, DatasetInfo] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    seeds: dict[tuple[str, int], int] = field(default_factory=dict)
    rates: dict[tuple[str, int], float] = field(default_factory=dict)
    trained: list[tuple[str, int]] = field(default_factory=list)
    caps: dict[int, float] = field(default_factory=dict)
    noise: dict[int, float] = field(default_factory=dict)
    books: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)
    pending: dict[str, ModelUpdate] = field(default_factory=dict)
    discarded: list[tuple[str, int]] = field(default_factory=list)

    def step(self, index: int, version: int) -> float:
        """Return what hospital `index` adds to every parameter of `version`."""
        return (index + 1) * 0.01 + version * 0.001

    def app(self) -> ClientApp:
        """Return the ClientApp that plays all of them."""
        app = ClientApp()
        app.query()(self._enrol)
        app.train()(self._train)
        app.train("release")(self._release)
        app.train("discard")(self._discard)
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
        answer = ModelUpdate(
            hospital_id=name,
            model_version=task.model_version,
            examples=self.examples.get(index, 10),
            update=update,
        )
        if parse_configuration(context.run_config).aggregation.release == "immediate":
            return Message(self._form(context, answer), reply_to=message)
        self.pending[name] = answer
        ready = Readiness(hospital_id=name, model_version=task.model_version)
        return Message(encode_readiness(ready), reply_to=message)

    def _release(self, message: Message, context: Context) -> Message:
        kept = self._take_pending(message, context)
        return Message(kept if isinstance(kept, Error) else self._form(context, kept), reply_to=message)

    def _discard(self, message: Message, context: Context) -> Message:
        kept = self._take_pending(message, context)
        if isinstance(kept, Error):
            return Message(kept, reply_to=message)
        self.discarded.append((kept.hospital_id, kept.model_version))
        gone = Discarded(hospital_id=kept.hospital_id, model_version=kept.model_version)
        return Message(encode_discarded(gone), reply_to=message)

    def _take_pending(self, message: Message, context: Context) -> ModelUpdate | Error:
        """Return what is kept for the decision in `message` and keep it no longer; an error if that is something else.

        As at every hospital, a decision about another version leaves what is kept.
        """
        _, name = self._id(context)
        kept = self.pending.get(name)
        if kept is None or kept.model_version != decode_decision(message.content).model_version:
            return _error(SiteErrorCode.NOTHING_PENDING)
        return self.pending.pop(name)

    def _form(self, context: Context, answer: ModelUpdate) -> Any:
        """Return the content that leaves the hospital: the declared and spoiled `answer`, or an error."""
        index, _ = self._id(context)
        if parse_configuration(context.run_config).privacy.mechanism != "none":
            declaration = self._declare(context, "training", answer.model_version)
            if declaration is None:
                return _error(SiteErrorCode.BUDGET_EXHAUSTED)
            answer = replace(answer, declaration=declaration)
        spoiled = self.spoil.get(index, lambda same: same)(answer)
        return encode_model_update(spoiled) if isinstance(spoiled, ModelUpdate) else spoiled

    def _evaluate(self, message: Message, context: Context) -> Message:
        index, name = self._id(context)
        task = decode_evaluation_task(message.content)
        scores = Scores(accuracy=0.5 + index / 100, auroc=None, loss=None, examples=10)
        answer = HospitalScores(hospital_id=name, model_version=task.model_version, split=task.split, scores=scores)
        if parse_configuration(context.run_config).privacy.mechanism != "none":
            declaration = self._declare(context, task.split, task.model_version)
            if declaration is None:
                return Message(_error(SiteErrorCode.BUDGET_EXHAUSTED), reply_to=message)
            answer = replace(answer, declaration=declaration)
        return Message(encode_hospital_scores(answer), reply_to=message)

    def _declare(self, context: Context, split: str, version: int) -> Declaration | None:
        """Book one release under "update-gaussian", or of scores, and declare it; None where there is no room for it.

        As at every hospital, room ends at its cap or at the epsilon of the run.
        """
        index, name = self._id(context)
        asked = parse_configuration(context.run_config).privacy
        book, cap = self.books.setdefault((name, split), {}), self.caps.get(index, 8.0)
        known = list(book.items())
        multiplier = book.get(version, self.noise.get(index, 24.22))
        until = known[: [number for number, _ in known].index(version)] if version in book else known
        history = History.of(
            [GaussianRelease(noise_multiplier=value) for value in (*(value for _, value in until), multiplier)]
        )
        spent = account_of("linear").epsilon(history, 1e-5)
        if spent > min(cap, asked.epsilon):
            return None
        book[version] = multiplier
        scores = split != "training"
        return Declaration(
            mechanism="metrics" if scores else "update-gaussian",
            relation=Relation.ADD_REMOVE if scores else Relation.ZERO_OUT,
            unit=Unit.RECORD if scores else Unit.UPDATE,
            clip_norm=1.0,
            event=GaussianRelease(noise_multiplier=multiplier),
            delta=1e-5,
            account="linear",
            spent=spent,
            cap=cap,
            releases=history.releases,
        )


def _error(code: SiteErrorCode) -> Error:
    return Error(int(code), code.sentence)


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
