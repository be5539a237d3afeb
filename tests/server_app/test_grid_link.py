"""The link to Flower's grid: one message per node, answers as they come, bytes counted, unknown nodes noticed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from federation.records.tensors import payload_bytes
from server_app.grid_link import GridLink
from server_app.simulation.virtual_grid import VirtualClock

CONTENT = RecordDict({"config": ConfigRecord({"text": "hello", "number": 1})})


class ScriptedGrid:
    """Answers calls with what the test laid out, and remembers them."""

    def __init__(self, ids: Any = ("message-1",), pulls: Iterable[list[Message]] = ()) -> None:
        self.ids, self.pulls = ids, list(pulls)
        self.pushed: list[Message] = []
        self.pulled: list[list[str]] = []

    def get_node_ids(self) -> list[int]:
        return [3, 2, 3]

    def push_messages(self, messages: Iterable[Message]) -> Any:
        self.pushed += messages
        return self.ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        self.pulled.append(list(message_ids))
        return self.pulls.pop(0) if self.pulls else []


class CountingClock(VirtualClock):
    """A virtual clock that remembers how it was waited on, each wait taking at most one second."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, at_most_s: float) -> None:
        self.waits.append(at_most_s)
        super().wait(min(at_most_s, 1.0))


def link_over(grid: Any, clock: VirtualClock | None = None) -> GridLink:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    return GridLink(grid, clock or CountingClock(), give_up_s=3600.0)


def reply_from(node_id: int, content: RecordDict | Error) -> Message:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    asked = Message(CONTENT, dst_node_id=node_id, message_type="train")
    asked.metadata.__dict__["_message_id"] = f"message-{node_id}"
    made: Message = Message(content, reply_to=asked)
    return made


def test_message_goes_to_one_node_and_lives_until_it_is_given_up() -> None:
    grid = ScriptedGrid()

    message_id = link_over(grid).send(CONTENT, 5, "train")

    (message,) = grid.pushed
    assert message_id == "message-1"
    assert (message.metadata.dst_node_id, message.metadata.message_type) == (5, "train")
    assert message.metadata.ttl == 3600
    assert message.content is CONTENT


@pytest.mark.parametrize("ids", [[], [""], [None], ["a", "b"], iter([])])
def test_node_that_flower_does_not_know_is_noticed_and_costs_no_bytes(ids: Any) -> None:
    link = link_over(ScriptedGrid(ids=ids))

    assert link.send(CONTENT, 5, "train") is None
    assert link.bytes_down == 0


def test_bytes_down_add_up_over_what_was_sent() -> None:
    link = link_over(ScriptedGrid())

    link.send(CONTENT, 5, "train")
    link.send(CONTENT, 6, "train")

    assert link.bytes_down == 2 * payload_bytes(CONTENT) == 2 * (len("texthello") + len("number") + 8)


def test_connected_nodes_are_a_set() -> None:
    assert link_over(ScriptedGrid()).node_ids() == {2, 3}


def test_answer_is_read_with_its_sender_and_bytes() -> None:
    link = link_over(ScriptedGrid(pulls=[[reply_from(5, CONTENT)]]))

    (reply,) = link.receive(["message-5"], 10.0)

    assert (reply.answered, reply.node_id, reply.error_code) == ("message-5", 5, 0)
    assert reply.content is not None
    assert link.bytes_up == payload_bytes(CONTENT)


def test_error_is_read_by_its_code_alone() -> None:
    link = link_over(ScriptedGrid(pulls=[[reply_from(5, Error(105, "secret"))]]))

    (reply,) = link.receive(["message-5"], 10.0)

    assert (reply.answered, reply.error_code, reply.content) == ("message-5", 105, None)
    assert "secret" not in repr(reply)
    assert link.bytes_up == 0


def test_first_answers_end_the_waiting() -> None:
    clock = CountingClock()
    grid = ScriptedGrid(pulls=[[], [], [reply_from(5, CONTENT), reply_from(6, CONTENT)]])

    replies = link_over(grid, clock).receive(["message-5", "message-6", "message-7"], 10.0)

    assert [reply.node_id for reply in replies] == [5, 6]
    assert clock.waits == [10.0, 9.0]
    assert grid.pulled == [["message-5", "message-6", "message-7"]] * 3


def test_waiting_ends_when_its_time_is_up() -> None:
    clock = CountingClock()
    grid = ScriptedGrid()

    assert link_over(grid, clock).receive(["message-5"], 2.5) == []
    assert clock.waits == [2.5, 1.5, 0.5]
    assert len(grid.pulled) == 4


def test_without_time_to_wait_the_grid_is_asked_once() -> None:
    clock = CountingClock()
    grid = ScriptedGrid(pulls=[[], [reply_from(5, CONTENT)]])

    assert link_over(grid, clock).receive(iter(["message-5"]), 0.0) == []
    assert (clock.waits, len(grid.pulled)) == ([], 1)


def test_messages_are_asked_for_four_at_a_time_until_any_is_answered() -> None:
    grid = ScriptedGrid(pulls=[[], [reply_from(7, CONTENT)]])
    ids = [f"message-{number}" for number in range(11)]

    replies = link_over(grid).receive(ids, 10.0)

    assert grid.pulled == [ids[:4], ids[4:8]]
    assert [reply.answered for reply in replies] == ["message-7"]


def test_all_messages_are_asked_for_before_the_next_wait() -> None:
    clock, grid = CountingClock(), ScriptedGrid()
    ids = [f"message-{number}" for number in range(6)]

    link_over(grid, clock).receive(ids, 1.5)

    assert grid.pulled == [ids[:4], ids[4:]] * 3
    assert clock.waits == [1.5, 0.5]
