"""What the server asks survives the wire, Flower's own serialization included, and is refused when it is malformed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st

from federation.config import TrainingConfig
from federation.errors import RefusalCode, RefusalError
from federation.records.fields import PROTOCOL_VERSION
from federation.records.tasks import (
    DISCARD,
    RELEASE,
    Decision,
    check_protocol,
    decode_decision,
    decode_evaluation_task,
    decode_training_task,
    encode_decision,
    encode_evaluation_task,
    encode_query,
    encode_training_task,
)
from federation.records.tensors import encode_parameters
from server_app.simulation.handover import serialized

PARAMETERS = {"z": torch.tensor([[1.5, -0.0], [3e-45, 3e38]]), "a": torch.tensor(2.0), "empty": torch.empty(0, 3)}
PLANS = st.builds(
    TrainingConfig,
    optimizer=st.sampled_from(["sgd", "adam", "adamw"]),
    learning_rate=st.floats(1e-6, 10),
    momentum=st.floats(0, 0.99),
    weight_decay=st.floats(0, 1),
    local_epochs=st.integers(1, 100),
    batch_size=st.integers(1, 4096),
    augmentation=st.sampled_from(["none", "shift", "shift-flip"]),
    device=st.sampled_from(["auto", "cpu"]),
    threads=st.integers(0, 8),
)
SEEDS = st.integers(0, 2**63 - 1)


def training_content(plan: TrainingConfig | None = None, *, version: int = 3, seed: int = 5) -> Any:
    arrays = encode_parameters(PARAMETERS)
    return encode_training_task(arrays, model_version=version, plan=plan or TrainingConfig(), seed=seed, run="demo")


def evaluation_content() -> Any:
    return encode_evaluation_task(encode_parameters(PARAMETERS), model_version=3, split="test", run="demo")


Decoder = Callable[[RecordDict], object]
TASKS: dict[str, tuple[Decoder, Callable[[], Any]]] = {
    "training": (decode_training_task, training_content),
    "evaluation": (decode_evaluation_task, evaluation_content),
    "decision": (decode_decision, lambda: encode_decision(3, "demo")),
    "query": (check_protocol, lambda: encode_query("demo")),
}
PLAN_KEYS = [f"plan.{key}" for key in TrainingConfig().model_dump(by_alias=True)]


def refusal_of(kind: str, content: RecordDict) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        TASKS[kind][0](content)
    return caught.value


def bits(tensors: dict[str, torch.Tensor]) -> list[tuple[str, torch.Size, torch.dtype, bytes]]:
    return [(name, value.shape, value.dtype, value.numpy().tobytes()) for name, value in tensors.items()]


@given(PLANS, st.integers(0, 2**31), SEEDS)
def test_training_task_survives(plan: TrainingConfig, version: int, seed: int) -> None:
    task = decode_training_task(training_content(plan, version=version, seed=seed))

    assert (task.plan, task.model_version, task.seed) == (plan, version, seed)
    assert bits(task.parameters) == bits(PARAMETERS)


@given(PLANS, SEEDS)
def test_training_task_survives_flowers_own_serialization(plan: TrainingConfig, seed: int) -> None:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    message = Message(training_content(plan, seed=seed), dst_node_id=2, message_type="train")

    task = decode_training_task(serialized(message).content)

    assert (task.plan, task.seed) == (plan, seed)
    assert bits(task.parameters) == bits(PARAMETERS)


@given(st.integers(0, 2**31))
def test_decision_survives_flowers_own_serialization(version: int) -> None:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    message = Message(encode_decision(version, "demo"), dst_node_id=2, message_type=RELEASE)

    received = serialized(message)

    assert received.metadata.message_type == "train.release"
    assert decode_decision(received.content) == Decision(model_version=version)


@pytest.mark.parametrize("message_type", [RELEASE, DISCARD])
def test_flower_accepts_the_message_types_of_decisions(message_type: str) -> None:
    assert Message(encode_decision(3, "demo"), dst_node_id=2, message_type=message_type).has_content()


def test_evaluation_task_survives() -> None:
    task = decode_evaluation_task(evaluation_content())

    assert (task.model_version, task.split) == (3, "test")
    assert bits(task.parameters) == bits(PARAMETERS)


def test_query_passes_the_protocol_check() -> None:
    check_protocol(encode_query("demo"))


def test_one_encoded_broadcast_serves_every_task_without_a_copy() -> None:
    arrays = encode_parameters(PARAMETERS)

    contents = [
        encode_training_task(arrays, model_version=1, plan=TrainingConfig(), seed=seed, run="demo") for seed in (1, 2)
    ]

    assert all(content["arrays"] is arrays for content in contents)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("version", [PROTOCOL_VERSION + 1, 0, "1", None])
def test_other_protocol_is_refused(kind: str, version: Any) -> None:
    content = TASKS[kind][1]()
    if version is None:
        del content["config"]["protocol"]
    else:
        content["config"]["protocol"] = version

    assert refusal_of(kind, content).code is RefusalCode.WRONG_PROTOCOL


@pytest.mark.parametrize(
    ("kind", "key"),
    [("training", "config"), ("training", "arrays"), ("evaluation", "config"), ("evaluation", "arrays"),
     ("decision", "config"), ("query", "config")],
)  # fmt: skip
@pytest.mark.parametrize("wrong", [True, False])
def test_missing_record_and_record_of_another_type_are_refused(kind: str, key: str, wrong: bool) -> None:
    content = TASKS[kind][1]()
    del content[key]
    if wrong:
        content[key] = ArrayRecord() if key == "config" else ConfigRecord()

    assert refusal_of(kind, content).code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("training", "model-version"),
        ("training", "seed"),
        ("decision", "model-version"),
        ("evaluation", "model-version"),
    ],
)
@pytest.mark.parametrize("value", [None, True, 1.0, "1"])
def test_what_is_no_integer_is_refused_where_one_is_expected(kind: str, key: str, value: Any) -> None:
    content = TASKS[kind][1]()
    del content["config"][key]
    if value is not None:
        content["config"][key] = value

    error = refusal_of(kind, content)

    assert error.code is RefusalCode.MALFORMED
    assert error.detail == f"Expected an integer {key!r}, found {value!r}."


@pytest.mark.parametrize("split", ["train", "", "Test", 1])
def test_split_that_is_not_for_scoring_is_refused(split: Any) -> None:
    content = evaluation_content()
    content["config"]["split"] = split

    assert refusal_of("evaluation", content).code is RefusalCode.MALFORMED


def test_unknown_plan_key_is_refused() -> None:
    content = training_content()
    content["config"]["plan.upload-images"] = True

    error = refusal_of("training", content)

    assert error.code is RefusalCode.MALFORMED
    assert error.detail.startswith("Training plan: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("local-epochs", 0),
        ("local-epochs", 1.0),
        ("local-epochs", True),
        ("batch-size", "64"),
        ("learning-rate", float("nan")),
        ("learning-rate", float("inf")),
        ("learning-rate", -1.0),
        ("optimizer", "lbfgs"),
        ("augmentation", "mixup"),
        ("device", "tpu"),
        ("threads", -1),
    ],
)
def test_plan_value_outside_its_bounds_is_refused(key: str, value: Any) -> None:
    content = training_content()
    content["config"][f"plan.{key}"] = value

    error = refusal_of("training", content)

    assert error.code is RefusalCode.MALFORMED
    assert error.detail.startswith("Training plan: ")


@pytest.mark.parametrize("key", PLAN_KEYS)
def test_every_field_of_the_plan_travels(key: str) -> None:
    assert key in training_content()["config"]
