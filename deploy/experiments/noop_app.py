"""A ClientApp that answers at once with an update of zeros: what is left to measure is the engine."""

from __future__ import annotations

import copy
import functools

import torch
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo, Task
from federation.models import build_empty_model
from federation.records.answers import ModelUpdate, encode_enrolment, encode_model_update
from federation.records.tensors import encode_parameters

EXAMPLES = 100
INFO = DatasetInfo(
    name="nothing",
    task=Task.MULTICLASS,
    class_names=tuple(f"class {index}" for index in range(11)),
    channels=1,
    height=28,
    width=28,
)

app = ClientApp()


@app.query()
def enrol(message: Message, context: Context) -> Message:
    """Answer with the shape of OrganAMNIST, which makes a model of 1.67 million parameters."""
    return Message(encode_enrolment(_name(context), EXAMPLES, INFO), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer with zeros of the model's shape, encoded once per process."""
    version = message.content.config_records["config"]["model-version"]
    content = encode_model_update(
        ModelUpdate(hospital_id=_name(context), model_version=int(str(version)), examples=EXAMPLES, update={})
    )
    content["arrays"] = zeros()
    return Message(content, reply_to=message)


def zeros() -> ArrayRecord:
    """Return a record of zeros in the model's shape; the bytes are made once per process."""
    return ArrayRecord({key: copy.copy(array) for key, array in _encoded_zeros().items()})


@functools.cache
def _encoded_zeros() -> ArrayRecord:
    state = build_empty_model(ModelConfig(), INFO).state_dict()
    return encode_parameters({name: torch.zeros_like(value) for name, value in state.items()})


def _name(context: Context) -> str:
    return f"hospital-{int(context.node_config['partition-id']):03d}"
