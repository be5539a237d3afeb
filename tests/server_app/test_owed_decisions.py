"""A decision that was lost with a node is owed: the hospital hears it when it is back, and nobody waits forever."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message

from federation.config import Configuration
from server_app.aggregation.arrivals import Arrivals
from server_app.aggregation.fedavg import FedAvg
from server_app.checkpoint import CheckpointStore
from server_app.engine import Engine
from server_app.simulation.virtual_grid import VirtualClock, VirtualGrid
from server_app.summary import Summary
from tests.doubles import Hospitals, configure
from tests.server_app.killing import Killed, kill_at
from tests.server_app.runs import applied, events, run_on, seconds

A, B = "hospital-000", "hospital-001"
OLD, NEW = 2, 4
NEVER = 1e9
TWO_PHASE: dict[str, Any] = {
    "aggregation__release": "two-phase",
    "privacy__mechanism": "update-gaussian",
    "run__hospital_evaluation": False,
    "run__hospitals": 2,
    "run__allow_silent_hospitals": True,
}
FEDASYNC: dict[str, Any] = {"aggregation__rule": "fedasync", "aggregation__rounds": 14}
BUFFERED: dict[str, Any] = {"aggregation__rule": "buffered", "aggregation__buffer_size": 2, "aggregation__rounds": 3}


class Leaving(VirtualGrid):
    """A grid on which A leaves with the first decision about its result, and comes back `away_s` later."""

    kind = "train.release"
    away_s = 300.0
    back_on = NEW

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._has_left = False
        self.lose_node(NEW)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        ids = list(super().push_messages(pushed))
        kind, node_id = pushed[0].metadata.message_type, pushed[0].metadata.dst_node_id
        if (kind, node_id, self._has_left) == (self.kind, OLD, False):
            self._has_left = True
            self.lose_node(OLD)
            self.clock.schedule(self.away_s, self.come_back)
        return ids

    def come_back(self) -> bool:
        self.return_node(self.back_on)
        return False


def leaving(**changes: Any) -> type[Leaving]:
    """Return the grid with `changes` of when A leaves and comes back."""
    return type("Changed", (Leaving,), changes)


def settings_of(folder: Path, rule: dict[str, Any], **more: Any) -> Configuration:
    return configure(folder, **{**TWO_PHASE, **rule, **more})


def run(folder: Path, rule: dict[str, Any], grid: type[Leaving], hospitals: Hospitals, **more: Any) -> Summary:
    """Run A, which needs 50 seconds, and B, which needs 101."""
    hospitals.names = {2: A}
    return run_on(settings_of(folder, rule, **more), seconds(50, 101, 50), hospitals, make=grid)


def told(folder: Path, *kinds: str) -> list[tuple[str, int]]:
    """Return kind and number of what A was sent, in order, or of some kinds of it."""
    sent = [event for event in events(folder, "dispatch") if event["hospital"] == A]
    return [(event["task"], event["number"]) for event in sent if not kinds or event["task"] in kinds]


@pytest.mark.parametrize("back_on", [OLD, NEW], ids=["the same node", "a new node"])
def test_result_is_released_once_when_its_hospital_is_back_before_it_is_asked_for_more(
    tmp_path: Path, back_on: int
) -> None:
    hospitals = Hospitals()

    summary = run(tmp_path, FEDASYNC, leaving(back_on=back_on), hospitals)

    (_, number), again, following, *_ = told(tmp_path, "train.release") + told(tmp_path, "train")[1:]
    assert again == ("train.release", number)
    assert told(tmp_path)[:3] == [("train", number), ("train.release", number), ("train.release", number)]
    assert following[1] > number
    rows = [(version, row) for version, rows in applied(tmp_path).items() for row in rows if row["number"] == number]
    ((version, row),) = rows
    assert (row["hospital"], row["staleness"]) == (A, version - 1)
    assert version >= 3
    assert hospitals.trained.count((A, 0)) == 1
    assert next(iter(hospitals.books[A, "training"])) == 0
    assert summary.refused == {}


def test_result_that_has_become_too_old_meanwhile_is_discarded_and_costs_nothing(tmp_path: Path) -> None:
    hospitals = Hospitals()

    summary = run(tmp_path, FEDASYNC, Leaving, hospitals, aggregation__max_staleness=1)

    assert told(tmp_path)[:3] == [("train", 1), ("train.release", 1), ("train.discard", 1)]
    assert hospitals.discarded[0] == (A, 0)
    assert 0 not in hospitals.books[A, "training"]
    assert summary.per_hospital[A].updates > 0


def test_time_for_which_a_decision_was_owed_does_not_count_as_training(tmp_path: Path) -> None:
    run(tmp_path, FEDASYNC, leaving(away_s=900.0), Hospitals())

    store = CheckpointStore(tmp_path / "run" / "checkpoints", settings_of(tmp_path, FEDASYNC))
    newest = store.load_newest()
    assert newest is not None
    assert [kind for kind, number in told(tmp_path) if number == 1] == ["train", "train.release", "train.release"]
    assert newest.progress.of(A).updates > 0
    assert newest.progress.longest_task_s == 101.0


def test_decision_to_discard_is_owed_as_well(tmp_path: Path) -> None:
    hospitals = Hospitals(names={2: A})
    settings = settings_of(tmp_path, FEDASYNC, aggregation__max_staleness=1)

    run_on(settings, seconds(50, 20, 50), hospitals, make=leaving(kind="train.discard", away_s=100.0))

    assert told(tmp_path)[:3] == [("train", 1), ("train.discard", 1), ("train.discard", 1)]
    assert hospitals.discarded[0] == (A, 0)


@pytest.mark.parametrize("rule", [BUFFERED, {"aggregation__rounds": 3}], ids=["buffered", "fedavg"])
def test_version_waits_for_a_hospital_that_is_back_soon(tmp_path: Path, rule: dict[str, Any]) -> None:
    summary = run(tmp_path, rule, leaving(away_s=150.0), Hospitals())

    assert [row["hospital"] for row in applied(tmp_path)[1]] in ([A, B], [B, A])
    assert summary.refused == {}


@pytest.mark.parametrize("rule", [BUFFERED, {"aggregation__rounds": 3}], ids=["buffered", "fedavg"])
def test_hospital_that_stays_away_is_waited_for_as_long_as_hospitals_are_at_the_start_and_no_longer(
    tmp_path: Path, rule: dict[str, Any]
) -> None:
    summary = run(tmp_path, rule, leaving(away_s=NEVER), Hospitals())

    assert (summary.status, summary.model_version) == ("completed", 3)
    first = events(tmp_path, "apply")[0]
    assert [row["hospital"] for row in first["updates"]] == [B]
    lost_at = 50 + 60
    assert lost_at + 120 <= first["elapsed_s"] <= lost_at + 130
    assert summary.per_hospital[A].updates == 0


@pytest.mark.parametrize(("rule", "owner"), [(BUFFERED, Arrivals), ({"aggregation__rounds": 3}, FedAvg)])
def test_hospital_that_stays_away_is_lost_to_the_rule_once_for_each_absence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any], owner: type[Arrivals | FedAvg]
) -> None:
    lost, lose = [], owner.lose

    def watch(rule: Any, name: str) -> None:
        lost.append(name)
        lose(rule, name)

    monkeypatch.setattr(owner, "lose", watch)

    run(tmp_path, rule, leaving(away_s=NEVER), Hospitals())

    assert lost == [A]


def test_result_of_a_hospital_that_is_back_after_the_others_went_on_is_released_all_the_same(tmp_path: Path) -> None:
    hospitals = Hospitals()

    run(tmp_path, BUFFERED | {"aggregation__rounds": 9}, leaving(away_s=500.0), hospitals)

    (row,) = [row for rows in applied(tmp_path).values() for row in rows if row["number"] == 1]
    assert row["staleness"] > 0
    assert hospitals.trained.count((A, 0)) == 1


def test_hospital_that_stays_away_for_too_long_is_given_up_and_asked_for_other_things_when_it_is_back(
    tmp_path: Path,
) -> None:
    summary = run(tmp_path, FEDASYNC, leaving(away_s=900.0), Hospitals(), aggregation__give_up_s=400.0)

    (lost,) = [event for event in events(tmp_path, "refusal") if event["hospital"] == A]
    assert lost["reason"] == "node-lost"
    assert 110 + 400 <= lost["elapsed_s"] <= 110 + 410
    assert [kind for kind, _ in told(tmp_path)][:3] == ["train", "train.release", "train"]
    assert summary.per_hospital[A].updates > 0


def test_hospital_that_keeps_nothing_any_more_is_lost_once_and_trains_again(tmp_path: Path) -> None:
    hospitals = Hospitals()

    class Forgetting(Leaving):
        def come_back(self) -> bool:
            hospitals.pending.clear()
            return super().come_back()

    summary = run(tmp_path, FEDASYNC, Forgetting, hospitals)

    assert summary.refused == {"node-lost": 1}
    assert summary.per_hospital[A].updates > 0


def test_hospital_whose_answers_are_always_lost_is_given_up_after_some_of_them(tmp_path: Path) -> None:
    class Silent(Hospitals):
        def _release(self, message: Message, context: Context) -> Message:
            if self._id(context)[1] == A:
                return Message(Error(5, "lost"), reply_to=message)
            return super()._release(message, context)

    summary = run(tmp_path, FEDASYNC, leaving(kind="none"), Silent())

    assert summary.model_version == 14
    first = told(tmp_path)[:13]
    assert [kind for kind, number in first if number == 1] == ["train", *["train.release"] * 11]
    assert first[12][0] == "train"
    times = [event["elapsed_s"] for event in events(tmp_path, "dispatch") if event["number"] == 1]
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 5.0
    assert summary.refused["node-lost"] >= 1


def test_hospital_that_is_back_after_the_last_version_discards_its_result(tmp_path: Path) -> None:
    hospitals = Hospitals()

    run(tmp_path, FEDASYNC | {"aggregation__rounds": 1}, leaving(away_s=100.0), hospitals)

    assert hospitals.discarded == [(A, 0)]
    assert not hospitals.books.get((A, "training"))


class Work:
    """A deployment whose server dies as soon as a checkpoint knows that A is owed a decision."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any], *, saves: int) -> None:
        self._folder, self._rule = folder, rule
        self.hospitals = Hospitals(names={2: A})
        monkeypatch.setattr(VirtualClock, "replays", False)
        with monkeypatch.context() as patch:
            kill_at(patch, CheckpointStore, "save", saves, after=True)
            with pytest.raises(Killed):
                self._run(leaving(away_s=NEVER))

    def resume(self, make: type[VirtualGrid]) -> Summary:
        return self._run(make, run__resume=True)

    def _run(self, make: type[VirtualGrid], **more: Any) -> Summary:
        settings = settings_of(self._folder, self._rule, **more)
        return run_on(settings, seconds(50, 40, 50), self.hospitals, make=make)


class There(VirtualGrid):
    """A grid with A on its new node."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lose_node(OLD)


class Late(There):
    """A comes to its new node only when the wait for it at the start is over."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lose_node(NEW)
        self.clock.schedule(300.0, self.come)

    def come(self) -> bool:
        self.return_node(NEW)
        return False


@pytest.mark.parametrize(
    ("rule", "saves", "make"), [(BUFFERED, 2, There), (FEDASYNC, 4, There), (FEDASYNC, 4, Late)]
)  # fmt: skip
def test_decision_is_owed_across_a_restart_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any], saves: int, make: type[VirtualGrid]
) -> None:
    work = Work(tmp_path, monkeypatch, rule, saves=saves)

    summary = work.resume(make)

    assert [row["hospital"] for rows in applied(tmp_path).values() for row in rows if row["number"] == 1] == [A]
    assert work.hospitals.trained.count((A, 0)) == 1
    assert next(iter(work.hospitals.books[A, "training"])) == 0
    assert set(summary.refused) <= {"interrupted"}


def test_decision_whose_loss_the_server_has_not_read_when_it_dies_is_owed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two others are ready at 20 s; what they release comes with the word of A's new node, before A's loss."""
    monkeypatch.setattr(VirtualClock, "replays", False)
    hospitals, timings = Hospitals(names={2: A}), seconds(10, 20, 10, 20)
    settings = settings_of(tmp_path, FEDASYNC, run__hospitals=3)
    with monkeypatch.context() as patch:
        kill_at(patch, Engine, "_record_application", 2, after=True)
        with pytest.raises(Killed):
            run_on(settings, timings, hospitals, make=leaving(away_s=7.0))
    newest = CheckpointStore(tmp_path / "run" / "checkpoints", settings).load_newest()
    resumed = settings_of(tmp_path, FEDASYNC, run__hospitals=3, run__resume=True)

    summary = run_on(resumed, timings, hospitals, make=There)

    assert newest is not None
    assert (1, "train.release") in [(task.number, task.kind) for task in newest.progress.in_flight]
    assert [row["hospital"] for rows in applied(tmp_path).values() for row in rows if row["number"] == 1] == [A]
    assert hospitals.trained.count((A, 0)) == 1
    assert "node-lost" not in summary.refused


def test_update_that_waits_beside_an_owed_decision_is_applied_and_booked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(tmp_path, monkeypatch, BUFFERED, saves=2)

    summary = work.resume(There)

    assert [event["hospital"] for event in events(tmp_path, "restore")] == [B]
    assert {(row["hospital"], row["number"]) for row in applied(tmp_path)[1]} == {(A, 1), (B, 2)}
    assert summary.refused == {}
    assert summary.per_hospital[B].updates == len(work.hospitals.books[B, "training"])


def test_simulation_that_dies_while_a_decision_is_owed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospitals = Hospitals()
    with monkeypatch.context() as patch:
        kill_at(patch, Engine, "_record_application", 2, after=True)
        with pytest.raises(Killed):
            run(tmp_path, FEDASYNC, leaving(away_s=NEVER), hospitals)

    summary = run(tmp_path, FEDASYNC, leaving(kind="none"), hospitals, run__resume=True)

    assert [row["hospital"] for rows in applied(tmp_path).values() for row in rows if row["number"] == 1] == [A]
    assert summary.refused == {}
