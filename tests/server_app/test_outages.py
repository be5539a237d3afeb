"""Hospitals that are away for a while, slow at evaluating, or lost at a bad moment cost what they must, no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict

from federation.config import Configuration, flatten
from federation.errors import RunFailedError
from server_app.main import app as server_app
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualGrid, VirtualSite
from server_app.summary import RunStatus, Summary
from tests.doubles import Hospitals, configure
from tests.server_app.runs import ASYNCHRONOUS, away, dropping, events, run_on, seconds


class Outage(VirtualGrid):
    """A grid whose nodes are all away for a while, during which it takes messages and answers each with an error.

    That is what Flower does: a message to a node that just went offline is accepted and comes back as unavailable.
    """

    def __init__(self, *arguments: Any, begins: float, ends: float, noticed: bool) -> None:
        super().__init__(*arguments)
        self._away = (begins, ends)
        self._noticed = noticed

    def get_node_ids(self) -> Iterable[int]:
        return [] if self.is_away() and self._noticed else super().get_node_ids()

    def is_away(self) -> bool:
        return self._away[0] <= self.clock.now() < self._away[1]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        away = self.is_away()
        with self.connected():
            ids = list(super().push_messages(pushed))
        for message_id in ids if away else []:
            self.clock.schedule(0.1, lambda lost=message_id: self._fail(lost, 5, "offline"))  # type: ignore[misc]
        return ids

    @contextmanager
    def connected(self) -> Iterator[None]:
        away, self._away = self._away, (0.0, 0.0)
        yield
        self._away = away


def run_with_outage(
    configuration: Configuration, *, begins: float, ends: float, timing: SiteTiming, noticed: bool = True
) -> Summary:
    flat = flatten(configuration)
    sites = [VirtualSite(node_config={"partition-id": i, "num-partitions": 2}, timing=timing) for i in range(2)]
    grid = Outage(Hospitals().app(), sites, flat, begins=begins, ends=ends, noticed=noticed)
    server_app(grid, Context(1, 1, {}, RecordDict(), flat))
    folder = Path(configuration.run.root) / configuration.run.name
    return Summary.model_validate_json((folder / "summary.json").read_text())


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("begins", [3.0, 34.5, 59.9, 70.0, 128.0])
def test_short_outage_of_all_hospitals_is_waited_out(tmp_path: Path, begins: float, noticed: bool) -> None:
    configuration = configure(tmp_path, aggregation__rounds=3, run__hospitals=2, aggregation__give_up_s=600.0)

    timing = SiteTiming(train_s=30)
    summary = run_with_outage(configuration, begins=begins, ends=begins + 30, timing=timing, noticed=noticed)

    assert summary.status is RunStatus.COMPLETED
    assert summary.model_version == 3


def test_outage_longer_than_the_wait_ends_the_run_and_says_so(tmp_path: Path) -> None:
    configuration = configure(tmp_path, aggregation__rounds=3, run__hospitals=2, run__wait_s=50.0)

    with pytest.raises(RunFailedError, match=r"found none for run\.wait-s=50|rounds in a row"):
        run_with_outage(configuration, begins=70.0, ends=10**6, timing=SiteTiming())


@pytest.mark.parametrize("rule", [{}, *ASYNCHRONOUS.values()], ids=["fedavg", *ASYNCHRONOUS])
@pytest.mark.parametrize("least", [1, 2])
def test_run_ends_when_the_only_hospital_that_has_budget_left_stays_away(
    tmp_path: Path, rule: dict[str, Any], least: int
) -> None:
    if rule == ASYNCHRONOUS["fedasync"] and least > 1:
        pytest.skip("One update is always enough.")
    settings: dict[str, Any] = {
        "privacy__mechanism": "update-gaussian",
        "run__hospital_evaluation": False,
        "run__allow_silent_hospitals": True,
        "aggregation__rounds": 200,
        "aggregation__min_updates": least,
        **rule,
    }

    hospitals = Hospitals(caps={0: 0.4, 1: 0.4})
    summary = run_on(configure(tmp_path, **settings), seconds(10, 12, 30), hospitals, make=away(4, begins=75))

    assert summary.status is RunStatus.COMPLETED
    why = ", and too few of these could be reached" if least == 1 else ""
    last = f"Version {summary.model_version} of 200 is the last"
    assert summary.reason == f"{last}: only 1 can still pay for an update{why}."
    assert summary.virtual_s is not None
    # Its task is lost a minute after it would have ended, and then it is waited for.
    assert summary.virtual_s < 75 + 30 + 60 + 120 + 30


def test_only_hospital_that_has_budget_left_is_waited_for_and_goes_on(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "privacy__mechanism": "update-gaussian",
        "run__hospital_evaluation": False,
        "aggregation__rounds": 6,
    }

    leave = away(3, begins=35, ends=35 + 30 + 60 + 100)
    summary = run_on(configure(tmp_path, **settings), seconds(10, 30), Hospitals(caps={0: 0.2}), make=leave)

    assert (summary.status, summary.model_version, summary.reason) == (RunStatus.COMPLETED, 6, "")


def test_absence_at_the_end_of_a_long_evaluation_does_not_fail_the_run(tmp_path: Path) -> None:
    timing = SiteTiming(train_s=60, evaluate_s=200)
    configuration = configure(tmp_path, aggregation__rounds=1, run__hospitals=2)

    summary = run_with_outage(configuration, begins=199.0, ends=204.0, timing=timing)

    assert summary.status is RunStatus.COMPLETED


def test_hospital_that_evaluates_slower_than_the_deadline_still_trains_and_is_tested(tmp_path: Path) -> None:
    timings = [SiteTiming(train_s=10, evaluate_s=1), SiteTiming(train_s=10, evaluate_s=30)]
    configuration = configure(tmp_path, aggregation__rounds=4, aggregation__deadline_s=20.0, run__hospitals=2)

    summary = simulate(configuration, Hospitals().app(), timings)

    assert [item.updates for item in summary.per_hospital.values()] == [4, 4]
    assert all(item.accuracy is not None for item in summary.per_hospital.values())


@pytest.mark.parametrize("release", ["immediate", "two-phase"])
def test_update_later_than_its_deadline_makes_the_version_with_one_that_waits_and_is_paid_once(
    tmp_path: Path, release: str
) -> None:
    settings: dict[str, Any] = {
        "aggregation__rounds": 2,
        "aggregation__deadline_s": 60.0,
        "aggregation__min_updates": 2,
        "aggregation__max_empty_rounds": 2,
        "aggregation__release": release,
        "privacy__mechanism": "update-gaussian",
        "run__hospital_evaluation": False,
    }
    hospitals = Hospitals()

    summary = run_on(configure(tmp_path, **settings), seconds(30, 70), hospitals)

    assert (summary.status, summary.model_version, summary.refused) == (RunStatus.COMPLETED, 2, {})
    assert summary.virtual_s == 2 * 70
    assert {name: list(book) for name, book in hospitals.books.items()} == {
        ("hospital-000", "training"): [0, 1], ("hospital-001", "training"): [0, 1],
    }  # fmt: skip
    assert len(hospitals.trained) == 4


def test_wedged_hospital_without_which_there_is_no_version_fails_the_run_soon(tmp_path: Path) -> None:
    configuration = configure(tmp_path, aggregation__deadline_s=60.0, aggregation__min_updates=2)

    with pytest.raises(RunFailedError, match="3 rounds in a row brought fewer than 2 usable updates"):
        simulate(configuration, Hospitals().app(), seconds(30, 70), tamper=dropping("train", 3))

    (finish,) = events(tmp_path, "finish")
    assert 120.0 <= finish["elapsed_s"] <= 300.0


def test_refused_scores_are_counted_apart_from_refused_updates(tmp_path: Path) -> None:
    def spoil_scores(message: Message) -> Iterable[Message]:
        if message.metadata.message_type != "evaluate":
            return [message]
        parts: dict[str, Any] = {"error": Error(107, "x"), "metadata": message.metadata}
        return [Message(**parts)]

    configuration = configure(tmp_path, aggregation__rounds=1, run__hospitals=1)
    summary = simulate(configuration, Hospitals().app(), [SiteTiming()], tamper=spoil_scores)

    assert summary.refused == {"evaluation:site-error:empty-split": 3}
    assert summary.updates_applied == 1
