"""Every answer belongs to one task, from the node that was asked, once."""

from __future__ import annotations

from typing import Any

import pytest
from flwr.app import RecordDict

from federation.errors import RefusalCode, RefusalError
from server_app.dispatch import Dispatch, InFlight
from server_app.grid_link import Reply
from server_app.progress import OpenTask


def task(number: int, kind: str = "train", **fields: Any) -> Dispatch:
    usual: dict[str, Any] = {
        "message_id": f"message-{number}",
        "node_id": number,
        "hospital_id": f"hospital-{number}",
        "kind": kind,
        "model_version": 1,
        "sent_at": float(number),
        "number": number,
    }
    return Dispatch(**usual | fields)


def reply(number: int, *, node_id: int | None = None, error_code: int = 0) -> Reply:
    content = None if error_code else RecordDict()
    sender = number if node_id is None else node_id
    return Reply(answered=f"message-{number}", node_id=sender, content=content, error_code=error_code)


def in_flight(*dispatches: Dispatch) -> InFlight:
    table = InFlight()
    for dispatch in dispatches:
        table.add(dispatch)
    return table


def refusal_of(table: InFlight, answer: Reply) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        table.settle(answer)
    return caught.value


def test_table_knows_what_is_open() -> None:
    table = in_flight(task(1), task(2, "evaluate"), task(3))

    assert (len(table), bool(table)) == (3, True)
    assert table.message_ids == ["message-1", "message-2", "message-3"]
    assert table.busy_nodes == {1, 2, 3}
    assert (table.count("train"), table.count("evaluate"), table.count("query")) == (2, 1, 0)
    assert list(table) == [task(1), task(2, "evaluate"), task(3)]


def test_answer_closes_its_task_and_no_other() -> None:
    table = in_flight(task(1), task(2))

    assert table.settle(reply(2)) == task(2)
    assert list(table) == [task(1)]
    assert table.busy_nodes == {1}


def test_second_answer_is_a_duplicate_and_an_unasked_one_unknown() -> None:
    table = in_flight(task(1))
    table.settle(reply(1))

    assert refusal_of(table, reply(1)).code is RefusalCode.DUPLICATE_REPLY
    assert refusal_of(table, reply(9)).code is RefusalCode.UNKNOWN_MESSAGE


def test_answer_of_another_node_is_refused_and_the_task_stays_open() -> None:
    table = in_flight(task(1))

    error = refusal_of(table, reply(1, node_id=2))

    assert (error.code, error.detail) == (RefusalCode.UNKNOWN_NODE, "Expected an answer of node 1, found node 2.")
    assert table.settle(reply(1)) == task(1)


def test_error_that_flower_made_closes_the_task_whoever_is_named_as_its_sender() -> None:
    table = in_flight(task(1))

    assert table.settle(reply(1, node_id=0, error_code=5)) == task(1)
    assert len(table) == 0


def test_table_may_be_changed_while_it_is_walked() -> None:
    table = in_flight(task(1), task(2))

    for dispatch in table:
        table.settle(reply(dispatch.node_id))

    assert not table


def test_tasks_of_a_hospital_that_moved_are_closed_but_those_at_its_new_node() -> None:
    table = in_flight(task(1), task(2, hospital_id="hospital-1"), task(3))

    closed = table.leave("hospital-1", 2)

    assert closed == [task(1)]
    assert [dispatch.number for dispatch in table] == [2, 3]
    assert table.busy_hospitals == {"hospital-1", "hospital-3"}
    assert refusal_of(table, reply(1)).code is RefusalCode.DUPLICATE_REPLY


def test_tasks_older_than_the_limit_of_their_kind_are_given_up_unless_their_answer_is_here() -> None:
    table = in_flight(task(1), task(2, "query"), task(3), task(4))

    closed = table.give_up(14.0, {"train": 10.0, "query": 20.0}, {"message-3"})

    assert closed == [task(1)]
    assert [dispatch.number for dispatch in table] == [2, 3, 4]


def test_answers_are_asked_for_in_the_order_of_the_numbers_given_and_then_of_the_rest() -> None:
    table = in_flight(task(1), task(2), task(3), task(4), task(5))

    table.sort([4, 2])

    assert table.message_ids == [f"message-{number}" for number in (4, 2, 1, 3, 5)]


def test_open_task_tells_a_checkpoint_all_that_is_needed_to_send_it_again() -> None:
    dispatch = task(7, "train.release", sent_at=12.5, began_at=3.25, split="test")

    assert dispatch.as_open_task() == OpenTask(
        number=7, hospital_id="hospital-7", kind="train.release", version=1, split="test", sent_at=12.5, began_at=3.25
    )


def test_owed_decision_is_waited_for_until_nobody_should_and_remembered_until_it_is_settled() -> None:
    table = in_flight(task(1))
    table.owe(task(2, "train.release"))

    assert (len(table), table.count("train.release")) == (2, 1)
    assert (table.message_ids, set(table.busy_nodes)) == (["message-1"], {1})
    assert [table.is_awaited(f"hospital-{number}") for number in (1, 2)] == [False, True]

    table.stop_waiting_for("hospital-2")

    assert (len(table), table.count("train.release")) == (1, 0)
    assert not table.is_awaited("hospital-2")
    assert [dispatch.number for dispatch in table] == [1, 2]
    assert table.busy_hospitals == {"hospital-1", "hospital-2"}
    assert [dispatch.number for dispatch in table.owed] == [2]

    table.settle_debt("hospital-2")
    table.owe(task(2, "train.release"))

    assert len(table) == 2


def test_owed_decision_comes_back_from_a_checkpoint_as_it_was() -> None:
    owed = task(2, "train.release", began_at=1.0)

    again = Dispatch.of(owed.as_open_task())

    assert again.as_open_task() == owed.as_open_task()
    assert (again.message_id, again.node_id) == ("", 0)
