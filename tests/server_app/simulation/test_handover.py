"""A message changes hands with equal content, and nobody can reach into what another holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from federation.records.tensors import decode_parameters, encode_parameters
from server_app.simulation.handover import HandOver, by_reference, serialized

BOTH = pytest.mark.parametrize("hand_over", [by_reference, serialized])


def make_message() -> Message:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    content = RecordDict(
        {
            "arrays": encode_parameters({"z": torch.ones(3), "a": torch.tensor(2.0), "empty": torch.empty(0, 2)}),
            "config": ConfigRecord({"text": "x", "list": [1, 2], "flag": True, "raw": b"\0\xff", "number": 0.1 + 0.2}),
            "metrics": MetricRecord({"examples": 3, "list": [1.0, 2.0]}),
        }
    )
    message = Message(content, dst_node_id=7, message_type="train", ttl=50.0, group_id="round")
    message.metadata.__dict__["_message_id"] = "message-1"
    return message


def metadata_of(message: Message) -> dict[str, Any]:
    meta = message.metadata
    names = ("run_id", "message_id", "src_node_id", "dst_node_id", "reply_to_message_id", "group_id", "ttl",
             "message_type", "created_at")  # fmt: skip
    return {name: getattr(meta, name) for name in names}


def snapshot(content: RecordDict) -> Any:
    return {
        key: [(name, getattr(value, "data", value), type(value)) for name, value in record.items()]
        for key, record in content.items()
    }


@BOTH
def test_content_and_metadata_are_equal_after_the_handover(hand_over: HandOver) -> None:
    message = make_message()

    received = hand_over(message)

    assert snapshot(received.content) == snapshot(message.content)
    assert metadata_of(received) == metadata_of(message)
    for sent, got in zip(
        decode_parameters(message.content.array_records["arrays"]).items(),
        decode_parameters(received.content.array_records["arrays"]).items(),
        strict=True,
    ):
        assert sent[0] == got[0]
        assert torch.equal(sent[1], got[1])


@BOTH
def test_reply_names_the_message_that_it_answers(hand_over: HandOver) -> None:
    reply = Message(RecordDict(), reply_to=hand_over(make_message()))

    received = hand_over(reply)

    assert received.metadata.reply_to_message_id == "message-1"
    assert (received.metadata.src_node_id, received.metadata.dst_node_id) == (7, 1)


@BOTH
def test_error_keeps_code_and_reason(hand_over: HandOver) -> None:
    received = hand_over(Message(Error(105, "sentence"), reply_to=make_message()))

    assert (received.error.code, received.error.reason, received.has_content()) == (105, "sentence", False)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "config value": lambda c: c["config"].update({"text": "changed"}),
    "config list": lambda c: c["config"]["list"].append(3),
    "config key": lambda c: c["config"].pop("flag"),
    "metric value": lambda c: c["metrics"].update({"examples": 9}),
    "metric list": lambda c: c["metrics"]["list"].append(3.0),
    "array removed": lambda c: c["arrays"].pop("z"),
    "array replaced": lambda c: c["arrays"].update(encode_parameters({"z": torch.zeros(3)})),
    "array's bytes replaced": lambda c: setattr(c["arrays"]["z"], "data", b"changed"),
    "record removed": lambda c: c.pop("arrays"),
    "record added": lambda c: c.update({"more": ConfigRecord({"a": 1})}),
    "decoded tensor written": lambda c: decode_parameters(c["arrays"])["z"].zero_(),
}


@BOTH
@pytest.mark.parametrize("change", CHANGES)
def test_receiver_that_changes_its_message_changes_nobody_elses(hand_over: HandOver, change: str) -> None:
    message = make_message()
    before = snapshot(make_message().content)
    first, second = hand_over(message), hand_over(message)

    CHANGES[change](first.content)

    assert snapshot(message.content) == before
    assert snapshot(second.content) == before


@BOTH
def test_metadata_of_the_receiver_are_its_own(hand_over: HandOver) -> None:
    message = make_message()

    hand_over(message).metadata.__dict__["_message_id"] = "changed"

    assert message.metadata.message_id == "message-1"


def test_array_bytes_are_the_same_object_by_reference_and_others_when_serialized() -> None:
    message = make_message()
    sent = message.content["arrays"]

    referenced, copied = by_reference(message).content["arrays"], serialized(message).content["arrays"]

    assert all(referenced[name].data is sent[name].data for name in sent)  # type: ignore[union-attr]
    assert copied["z"].data is not sent["z"].data  # type: ignore[union-attr]
