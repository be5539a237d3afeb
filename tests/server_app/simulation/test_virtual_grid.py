"""Virtual time is exact arithmetic, and the grid fails in the same ways, with the same codes, as Flower's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import RunFailedError
from federation.records.tensors import decode_parameters, encode_parameters, payload_bytes
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualClock, VirtualGrid, VirtualSite

SENT = RecordDict({"arrays": encode_parameters({"w": torch.arange(10.0)}), "config": ConfigRecord({"list": [1, 2]})})
ANSWERED = RecordDict({"arrays": encode_parameters({"w": torch.arange(30.0)})})
DOWN, UP = payload_bytes(SENT), payload_bytes(ANSWERED)

Handler = Callable[[Message, Context], RecordDict]


def app_of(handler: Handler = lambda message, context: ANSWERED) -> ClientApp:
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        return Message(handler(message, context), reply_to=message)

    for register in (app.train, app.evaluate, app.query):
        register()(answer)
    return app


def grid_of(*timings: SiteTiming, handler: Handler = lambda message, context: ANSWERED, **options: Any) -> VirtualGrid:
    sites = [VirtualSite(node_config={"partition-id": index}, timing=timing) for index, timing in enumerate(timings)]
    return VirtualGrid(app_of(handler), sites, {"key": "value"}, **options)


def message_to(node_id: int, kind: str = "train", ttl: float = 1e9) -> Message:
    return Message(SENT, dst_node_id=node_id, message_type=kind, ttl=ttl)


def send(grid: VirtualGrid, node_id: int, kind: str = "train", ttl: float = 1e9) -> str:
    (message_id,) = grid.push_messages([message_to(node_id, kind, ttl)])
    return message_id


def pull(grid: VirtualGrid, *message_ids: str) -> list[Message]:
    return list(grid.pull_messages(message_ids))


def outcome(reply: Message) -> int:
    return reply.error.code if reply.has_error() else 0


def arrival(grid: VirtualGrid, message_id: str) -> tuple[float, Message]:
    """Return when the reply to `message_id` is there, and the reply."""
    while not (replies := pull(grid, message_id)):
        grid.clock.wait(math.inf)
    return grid.clock.now(), replies[0]


@pytest.mark.parametrize(
    ("kind", "timing", "seconds"),
    [
        ("train", SiteTiming(train_s=60.0), 60.0),
        ("evaluate", SiteTiming(evaluate_s=5.0), 5.0),
        ("query", SiteTiming(), 0.0),
        ("train", SiteTiming(train_s=60.0, bytes_per_s=8.0), DOWN / 8 + 60 + UP / 8),
        ("evaluate", SiteTiming(evaluate_s=5.0, bytes_per_s=0.5), DOWN / 0.5 + 5 + UP / 0.5),
        ("query", SiteTiming(bytes_per_s=4.0), DOWN / 4 + UP / 4),
    ],
)
def test_reply_arrives_after_bytes_down_computing_and_bytes_up(kind: str, timing: SiteTiming, seconds: float) -> None:
    grid = grid_of(timing)
    grid.clock.wait(100.0)

    moment, reply = arrival(grid, send(grid, 2, kind))

    assert moment == pytest.approx(100.0 + seconds, rel=1e-12)
    assert (outcome(reply), reply.metadata.src_node_id) == (0, 2)


def test_hospitals_answer_in_the_order_of_their_speed() -> None:
    grid = grid_of(SiteTiming(train_s=30.0), SiteTiming(train_s=10.0), SiteTiming(train_s=20.0))
    ids = [send(grid, node_id) for node_id in (2, 3, 4)]

    moments: list[tuple[float, int]] = []
    while len(moments) < 3:
        grid.clock.wait(math.inf)
        moments += [(grid.clock.now(), reply.metadata.src_node_id) for reply in pull(grid, *ids) if not outcome(reply)]

    assert moments == [(10.0, 3), (20.0, 4), (30.0, 2)]


def test_replies_of_one_moment_are_all_there_when_the_waiter_wakes() -> None:
    grid = grid_of(*[SiteTiming(train_s=10.0)] * 3)
    ids = [send(grid, node_id) for node_id in (2, 3, 4)]

    grid.clock.wait(math.inf)

    assert grid.clock.now() == 10.0
    assert [reply.metadata.src_node_id for reply in pull(grid, *ids)] == [2, 3, 4]


def test_hospital_computes_when_its_task_ends_and_not_before() -> None:
    computed: list[float] = []

    def compute(message: Message, context: Context) -> RecordDict:
        computed.append(grid.clock.now())
        return ANSWERED

    grid = grid_of(SiteTiming(train_s=10.0), handler=compute)
    send(grid, 2)

    grid.clock.wait(9.0)
    early = list(computed)
    grid.clock.wait(5.0)

    assert (early, computed) == ([], [10.0])


def test_wait_ends_at_its_limit_when_nothing_happens() -> None:
    grid = grid_of(SiteTiming(train_s=10.0))
    message_id = send(grid, 2)

    grid.clock.wait(4.0)

    assert grid.clock.now() == 4.0
    assert pull(grid, message_id) == []


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=8), st.lists(st.floats(-5, 100), max_size=8))
def test_clock_never_goes_back_and_no_event_is_late_or_lost(
    events: list[tuple[float, bool]], waits: list[float]
) -> None:
    clock = VirtualClock()
    happened: list[tuple[float, float]] = []

    def happen(due: float, wakes: bool) -> bool:
        happened.append((due, clock.now()))
        return wakes

    for delay_s, wakes in events:
        clock.schedule(delay_s, partial(happen, delay_s, wakes))

    for at_most_s in [*waits, *[1000.0] * len(events), 1000.0]:
        before = clock.now()
        clock.wait(at_most_s)
        assert before <= clock.now() <= before + max(0.0, at_most_s)

    assert sorted(due for due, _ in happened) == sorted(delay_s for delay_s, _ in events)
    assert all(due == moment for due, moment in happened)
    assert happened == sorted(happened)


def test_events_of_one_moment_happen_in_the_order_in_which_they_were_scheduled() -> None:
    clock = VirtualClock()
    happened: list[str] = []

    def happen(name: str, follower: str | None = None) -> bool:
        happened.append(name)
        if follower:
            clock.schedule(0.0, partial(happen, follower))
        return name == "first"

    clock.schedule(1.0, partial(happen, "first", "third"))
    clock.schedule(1.0, partial(happen, "second"))

    clock.wait(5.0)

    assert happened == ["first", "second", "third"]
    assert clock.now() == 1.0


def test_unbounded_wait_for_nothing_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(RunFailedError, match="nothing is in flight"):
        VirtualClock().wait(math.inf)


def test_clock_that_is_set_is_there_and_what_is_late_happens_at_the_next_wait_as_of_its_own_time() -> None:
    clock = VirtualClock()
    happened: list[tuple[str, float]] = []

    def happen(name: str, *, follower_s: float | None = None, wakes: bool = False) -> bool:
        happened.append((name, clock.now()))
        if follower_s is not None:
            clock.schedule(follower_s, partial(happen, f"after {name}", wakes=True))
        return wakes

    clock.schedule(3.0, partial(happen, "late", follower_s=4.0))
    clock.schedule(30.0, partial(happen, "future", follower_s=4.0))

    clock.set(10.0)
    now_before = clock.now()
    clock.wait(5.0)
    now_between = clock.now()
    clock.wait(100.0)

    assert happened == [("late", 3.0), ("after late", 7.0), ("future", 30.0), ("after future", 34.0)]
    assert (now_before, now_between, clock.now()) == (10.0, 10.0, 34.0)


def test_task_sent_as_of_an_earlier_time_is_answered_when_it_would_have_been() -> None:
    timing = SiteTiming(train_s=10.0, bytes_per_s=8.0)
    expected, _ = arrival(first := grid_of(timing), send(first, 2))
    grid = grid_of(timing)

    message_id = send(grid, 2)
    grid.clock.set(expected - 1.0)  # Computed by then, and on its way back.
    moment, _ = arrival(grid, message_id)

    assert moment == expected > 11.0


@pytest.mark.parametrize("fidelity", [False, True])
def test_hospital_that_changes_what_it_received_changes_nothing_for_others(fidelity: bool) -> None:
    received: list[tuple[Any, list[str]]] = []

    def vandal(message: Message, context: Context) -> RecordDict:
        content: Any = message.content
        received.append((list(content["config"]["list"]), list(content["arrays"])))
        content["config"]["list"].append(99)
        decode_parameters(content["arrays"])["w"].zero_()
        content["arrays"].clear()
        context.run_config["key"] = "changed"
        context.state["x"] = ConfigRecord()
        return ANSWERED

    grid = grid_of(*[SiteTiming(train_s=1.0)] * 3, handler=vandal, fidelity=fidelity)
    list(grid.send_and_receive([message_to(node_id) for node_id in (2, 3, 4)]))

    assert received == [([1, 2], ["w"])] * 3
    assert torch.equal(decode_parameters(SENT.array_records["arrays"])["w"], torch.arange(10.0))
    contexts = grid._contexts
    assert all(contexts[2].state is not contexts[node_id].state for node_id in (3, 4))
    assert contexts[2].run_config is not contexts[3].run_config


@pytest.mark.parametrize("fidelity", [False, True])
def test_reply_does_not_change_when_its_sender_changes_what_it_sent(fidelity: bool) -> None:
    mine: Any = RecordDict({"config": ConfigRecord({"list": [1]})})
    grid = grid_of(SiteTiming(train_s=1.0), handler=lambda message, context: mine, fidelity=fidelity)

    (reply,) = grid.send_and_receive([message_to(2)])
    mine["config"]["list"].append(2)

    assert reply.content["config"]["list"] == [1]


def test_bytes_are_handed_over_uncopied_unless_fidelity_is_asked_for() -> None:
    seen: list[bytes] = []

    def look(message: Message, context: Context) -> RecordDict:
        seen.append(message.content.array_records["arrays"]["w"].data)
        return ANSWERED

    for fidelity in (False, True):
        list(grid_of(SiteTiming(), handler=look, fidelity=fidelity).send_and_receive([message_to(2)]))

    sent = SENT.array_records["arrays"]["w"].data
    assert seen[0] is sent
    assert seen[1] is not sent
    assert seen[1] == sent


def test_hospital_keeps_its_state_between_tasks() -> None:
    def count(message: Message, context: Context) -> RecordDict:
        before = int(context.state.config_records["x"]["n"]) if "x" in context.state else 0  # type: ignore[arg-type]
        context.state["x"] = ConfigRecord({"n": before + 1})
        return RecordDict({"config": ConfigRecord({"n": before + 1, "site": context.node_config["partition-id"]})})

    grid = grid_of(SiteTiming(), SiteTiming(), handler=count)
    replies = [next(iter(grid.send_and_receive([message_to(node_id)]))) for node_id in (2, 2, 3)]

    answers = [reply.content.config_records["config"] for reply in replies]
    assert [(answer["site"], answer["n"]) for answer in answers] == [(0, 1), (0, 2), (1, 1)]


def test_lost_node_ends_in_code_5_a_minute_after_its_task() -> None:
    grid = grid_of(SiteTiming(train_s=10.0), SiteTiming(train_s=10.0))
    message_id = send(grid, 2)
    grid.lose_node(2)

    moment, reply = arrival(grid, message_id)

    assert (moment, outcome(reply)) == (70.0, 5)
    assert reply.metadata.reply_to_message_id == message_id
    assert list(grid.get_node_ids()) == [3]


def test_node_that_returns_before_its_task_ends_answers_as_if_nothing_had_been() -> None:
    grid = grid_of(SiteTiming(train_s=10.0))
    message_id = send(grid, 2)
    grid.lose_node(2)
    grid.clock.wait(5.0)
    grid.return_node(2)

    moment, reply = arrival(grid, message_id)

    assert (moment, outcome(reply)) == (10.0, 0)
    assert list(grid.get_node_ids()) == [2]


def test_expired_message_ends_in_code_3_and_is_not_answered_later() -> None:
    grid = grid_of(SiteTiming(train_s=10.0))
    message_id = send(grid, 2, ttl=4.0)

    moment, reply = arrival(grid, message_id)
    grid.clock.wait(100.0)

    assert (moment, outcome(reply)) == (4.0, 3)
    assert [outcome(again) for again in pull(grid, message_id)] == [3]


def test_message_answered_in_time_does_not_expire() -> None:
    grid = grid_of(SiteTiming(train_s=10.0))
    message_id = send(grid, 2, ttl=11.0)

    grid.clock.wait(100.0)
    grid.clock.wait(100.0)

    assert [outcome(reply) for reply in pull(grid, message_id)] == [0]


def test_unknown_id_and_delivered_id_give_code_3() -> None:
    grid = grid_of(SiteTiming(train_s=1.0))
    message_id = send(grid, 2)
    open_replies = pull(grid, message_id)
    grid.clock.wait(math.inf)

    first, again, unknown = pull(grid, message_id), pull(grid, message_id), pull(grid, "never")

    assert open_replies == []
    assert [outcome(reply) for reply in first + again + unknown] == [0, 3, 3]
    assert (again[0].metadata.reply_to_message_id, unknown[0].metadata.reply_to_message_id) == (message_id, "never")


def test_message_to_an_unknown_or_lost_node_gets_no_id() -> None:
    grid = grid_of(SiteTiming(), SiteTiming())
    grid.lose_node(3)

    ids = list(grid.push_messages([message_to(9), message_to(2), message_to(3), message_to(1)]))

    assert len(ids) == 1
    assert list(grid.push_messages([message_to(3)])) == []


def test_send_and_receive_returns_what_came_until_the_timeout() -> None:
    grid = grid_of(SiteTiming(train_s=10.0), SiteTiming(train_s=90.0))

    replies = list(grid.send_and_receive([message_to(2), message_to(3)], timeout=30.0))

    assert [reply.metadata.src_node_id for reply in replies] == [2]
    assert grid.clock.now() == 30.0


def test_send_and_receive_without_a_timeout_waits_for_all() -> None:
    grid = grid_of(SiteTiming(train_s=10.0), SiteTiming(train_s=90.0), SiteTiming(train_s=20.0))
    grid.clock.wait(5.0)
    messages = [message_to(node_id) for node_id in (2, 3, 4)]
    grid.lose_node(4)

    replies = list(grid.send_and_receive(messages))

    assert [(reply.metadata.src_node_id, outcome(reply)) for reply in replies] == [(2, 0), (3, 0)]
    assert grid.clock.now() == 95.0


def test_reply_that_the_network_swallows_ends_when_its_message_expires() -> None:
    grid = grid_of(SiteTiming(train_s=1.0), tamper=lambda message: [])

    moment, reply = arrival(grid, send(grid, 2, ttl=50.0))

    assert (moment, outcome(reply)) == (50.0, 3)


def test_network_may_double_a_reply() -> None:
    def twice(message: Message) -> Iterable[Message]:
        return [message, message]

    grid = grid_of(SiteTiming(train_s=1.0), tamper=twice)
    message_id = send(grid, 2)
    grid.clock.wait(math.inf)

    assert [outcome(reply) for reply in pull(grid, message_id)] == [0, 0]


def test_message_made_by_the_grid_reaches_its_node() -> None:
    grid = grid_of(SiteTiming(train_s=3.0))
    message = grid.create_message(SENT, "train", 2, "round-1", ttl=100.0)

    (reply,) = grid.send_and_receive([message])

    assert (reply.metadata.group_id, reply.metadata.src_node_id, grid.run.run_id) == ("round-1", 2, 1)
