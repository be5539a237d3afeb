"""Four scripted hospitals for a server that is killed: small updates, made at once, different from all others."""

from __future__ import annotations

import itertools
import math

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from federation.config import parse_configuration
from federation.datasets.image_set import DatasetInfo, Task
from federation.metrics import Scores
from federation.models import build_empty_model
from federation.parameters import Parameters
from federation.randomness import numpy_stream
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
from federation.records.tasks import decode_decision, decode_evaluation_task, decode_training_task

INFO = DatasetInfo(name="dots", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=4, width=4)
_EXAMPLES = (40, 20, 10, 80)
_STEP = 0.01

app = ClientApp()
_answers = itertools.count()


@app.query()
def enrol(message: Message, context: Context) -> Message:
    """Answer who this is."""
    number = _number(context)
    return Message(encode_enrolment(_name(context), _EXAMPLES[number], INFO), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer with an update, or under two-phase release that one is ready."""
    version = decode_training_task(message.content).model_version
    if parse_configuration(context.run_config).aggregation.release == "immediate":
        return _answer(message, context, version)
    ready = Readiness(hospital_id=_name(context), model_version=version)
    return Message(encode_readiness(ready), reply_to=message)


@app.train("release")
def release(message: Message, context: Context) -> Message:
    """Answer with the update that the server was told of."""
    return _answer(message, context, decode_decision(message.content).model_version)


@app.train("discard")
def discard(message: Message, context: Context) -> Message:
    """Answer that there is no update any more."""
    version = decode_decision(message.content).model_version
    return Message(encode_discarded(Discarded(hospital_id=_name(context), model_version=version)), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Answer with scores that depend on hospital and version only."""
    task = decode_evaluation_task(message.content)
    accuracy = 0.5 + _number(context) / 10 + task.model_version / 1000
    scores = Scores(accuracy=accuracy, auroc=None, loss=None, examples=10)
    answer = HospitalScores(
        hospital_id=_name(context), model_version=task.model_version, split=task.split, scores=scores
    )
    return Message(encode_hospital_scores(answer), reply_to=message)


def _answer(message: Message, context: Context, version: int) -> Message:
    """Return the update: drawn by hospital and version, and where there is a nonce by that and its turn, too."""
    number, nonce = _number(context), str(context.node_config["nonce"])
    turn = f"{nonce} {next(_answers)}" if nonce else ""
    stream = numpy_stream(0, turn, number, version)
    update: Parameters = {
        name: torch.from_numpy(_STEP * stream.standard_normal(math.prod(value.shape))).float().reshape(value.shape)
        for name, value in _like(context).items()
    }
    answer = ModelUpdate(hospital_id=_name(context), model_version=version, examples=_EXAMPLES[number], update=update)
    content: RecordDict = encode_model_update(answer)
    return Message(content, reply_to=message)


def _like(context: Context) -> Parameters:
    return dict(build_empty_model(parse_configuration(context.run_config).model, INFO).state_dict())


def _number(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _name(context: Context) -> str:
    return f"hospital-{_number(context):03d}"
