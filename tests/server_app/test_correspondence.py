"""Whoever has an open task, or a lost one that nobody has read about yet, is not asked for more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.errors import RefusalCode, RefusalError
from federation.records.answers import Enrolment
from federation.records.tasks import encode_query
from server_app.correspondence import Correspondence
from server_app.grid_link import GridLink
from server_app.journal import Journal
from server_app.progress import Progress
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualGrid, VirtualSite
from tests.doubles import Hospitals


@pytest.fixture
def mail(tmp_path: Path) -> Iterator[Correspondence]:
    """Give a post office over two simulated hospitals that take a minute for a task."""
    grid = VirtualGrid(Hospitals().app(), [VirtualSite(node_config={"partition-id": 0}, timing=SiteTiming())] * 2, {})
    with Journal(tmp_path / "events.jsonl") as journal:
        yield Correspondence(GridLink(grid, grid.clock, give_up_s=600.0), grid.clock, Progress(), journal)


def test_hospital_that_moved_is_spoken_for_until_the_loss_of_its_task_has_been_read(mail: Correspondence) -> None:
    mail.ask(encode_query("run"), node_id=2, kind="train", hospital_id="north", version=0)

    mail.leave("north", node_id=3)
    before = mail.spoken_for
    received = mail.receive(0.0)

    assert received is not None
    assert isinstance(received[1], RefusalError)
    assert received[1].code is RefusalCode.NODE_LOST
    assert before == {"north"}
    assert not mail.spoken_for


def test_lost_task_stays_open_for_a_checkpoint_until_its_loss_has_been_read(mail: Correspondence) -> None:
    for kind in ("query", "train.release"):
        mail.ask(encode_query("run"), node_id=2, kind=kind, hospital_id="north", version=0)

    mail.leave("north", node_id=3)
    before = mail.open_tasks()
    while mail.receive(0.0):
        continue

    assert [(task.number, task.kind) for task in before] == [(1, "train.release")]
    assert mail.open_tasks() == []


def test_answer_that_came_before_its_hospital_moved_is_read_and_its_task_is_not_lost(mail: Correspondence) -> None:
    for node_id, name in ((2, "south"), (3, "north")):
        mail.ask(encode_query("run"), node_id=node_id, kind="query", hospital_id=name)
    mail.receive(1.0)

    mail.leave("north", node_id=2)
    received = mail.receive(1.0)

    assert received is not None
    assert received[0].hospital_id == "north"
    assert isinstance(received[1], Enrolment)
    assert mail.receive(0.0) is None
    assert mail.progress.refused == {}


def test_task_at_the_node_where_the_hospital_is_now_stays_open(mail: Correspondence) -> None:
    mail.ask(encode_query("run"), node_id=2, kind="train", hospital_id="north", version=0)

    mail.leave("north", node_id=2)

    assert mail.in_flight.count("train") == 1
    assert mail.spoken_for == {"north"}


def test_numbers_count_tasks_and_not_queries(mail: Correspondence) -> None:
    mail.ask(encode_query("run"), node_id=2, kind="query")
    mail.ask(encode_query("run"), node_id=3, kind="train", hospital_id="north", version=0)

    assert sorted(dispatch.number for dispatch in mail.in_flight) == [0, 1]
    assert mail.progress.tasks == 1
