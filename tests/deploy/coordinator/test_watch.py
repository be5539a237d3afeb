"""Who stands how, and what needs a hand: gone hospitals, zombies, certificates, runs that stand still or failed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from deploy.coordinator.overview import Connection, Overview
from deploy.coordinator.superlink import Answer, Node
from deploy.coordinator.watch import Finding, Weight, find
from deploy.trust.consortium import RetiredKey
from tests.deploy.coordinator.made_up import (
    HOUR_S,
    NOW,
    answer,
    event,
    hospital,
    lookout,
    step,
    write_consortium,
    write_run,
)
from tests.deploy.trust.founded import found

TASK = {"hospital": "a", "version": 4, "number": 1}


def look(folder: Path, said: Answer | None = None) -> Overview:
    return lookout(folder, said).look()


def findings(overview: Overview, subject: str) -> list[Finding]:
    return [item for item in find(overview) if item.subject == subject]


def connections(overview: Overview) -> dict[str, Connection]:
    return {seat.hospital: seat.connection for seat in overview.seats}


def waiting_run(folder: Path, *, waited_s: float, task: str = "train", **settings: Any) -> None:
    """Write a run in which `a` was sent a task `waited_s` ago and has not answered."""
    events = [
        event("start", 0),
        event("dispatch", 10, task=task, **TASK),
        event("enrol", 10 + waited_s - 1, hospital="b", examples=1),
    ]
    write_run(folder / "runs", "run", events, age_s=1, **settings)


def test_hospitals_stand_as_the_superlink_says(tmp_path: Path) -> None:
    people = [hospital(name) for name in ("here", "gone", "new", "lost")]
    write_consortium(
        tmp_path / "consortium", *people, hospital("late", node_id=""), hospital("out", revoked="2026-05-01")
    )

    overview = look(tmp_path, answer(here="online", gone="offline", new="registered", out="offline"))

    assert connections(overview) == {
        "here": Connection.ONLINE,
        "gone": Connection.OFFLINE,
        "new": Connection.NEVER,
        "lost": Connection.UNKNOWN,
        "late": Connection.UNREGISTERED,
        "out": Connection.REVOKED,
    }
    assert [seat.last_contact for seat in overview.seats[:3]] == [NOW - 3, NOW - HOUR_S, None]


def test_nobody_knows_who_is_connected_while_the_superlink_is_silent(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"), hospital("out", revoked="2026-05-01"))

    overview = look(tmp_path, Answer(asked_at=NOW, failure="The SuperLink was not reached: no route."))

    assert connections(overview) == {"a": Connection.UNKNOWN, "out": Connection.REVOKED}
    assert [item.text for item in findings(overview, "superlink")] == ["The SuperLink was not reached: no route."]


def test_hospital_whose_key_is_changing_is_online_with_either_node(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a", node_id="new", previous_node_id="old"))
    nodes = {
        "old": Node(status="online", online_at=NOW - 9, offline_at=None),
        "new": Node(status="registered", online_at=None, offline_at=None),
    }

    overview = look(tmp_path, Answer(asked_at=NOW, nodes=nodes))

    assert connections(overview) == {"a": Connection.ONLINE}


def test_last_contact_is_the_newest_of_superlink_and_run(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"))
    enrolled = event("enrol", 50, hospital="a", examples=1)
    write_run(tmp_path / "runs", "run", [event("start", 0), enrolled], age_s=600)

    overview = look(tmp_path, answer(a="offline"))

    assert overview.seats[0].last_contact == NOW - 600


def test_hospital_that_was_there_and_is_gone_is_named(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("gone"), hospital("new"), hospital("here"))

    overview = look(tmp_path, answer(gone="offline", new="registered", here="online"))

    assert [item.text.partition(".")[0] for item in findings(overview, "gone")] == [
        "It was connected before and is offline; last heard of 1 h ago"
    ]
    assert not findings(overview, "new")
    assert not findings(overview, "here")


def test_zombie_is_named_once_its_task_is_overdue(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"), hospital("b"))
    waiting_run(tmp_path, waited_s=2 * HOUR_S)

    overview = look(tmp_path, answer(a="online", b="online"))

    (zombie,) = findings(overview, "a")
    assert "counts as online and has not answered a task (train, version 4) for 2 h" in zombie.text
    assert not findings(overview, "b")


@pytest.mark.parametrize(
    ("status", "options"),
    [
        ("online", {"waited_s": 1700.0}),
        ("online", {"waited_s": 2 * HOUR_S, "run__wait_s": 3 * HOUR_S}),
        ("online", {"waited_s": 2 * HOUR_S, "task": "evaluate"}),
        ("registered", {"waited_s": 2 * HOUR_S}),
    ],
    ids=["not yet", "patient run", "evaluation", "not online"],
)
def test_hospital_that_may_still_be_at_work_is_no_zombie(tmp_path: Path, status: str, options: dict[str, Any]) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"), hospital("b"))
    waiting_run(tmp_path, **options)

    assert not findings(look(tmp_path, answer(a=status)), "a")


def test_run_that_trains_for_hours_has_no_zombies_before_one_and_a_half_times_that(tmp_path: Path) -> None:
    longest = [event("dispatch", 0, task="train", hospital="b", version=0), event("update", 7200, hospital="b")]
    dispatch = event("dispatch", 7200, task="train", **TASK)
    for name, waited_s in (("early", 10_000), ("late", 11_000)):
        last = event("enrol", 7200 + waited_s, hospital="c", examples=1)
        write_run(tmp_path / name / "runs", "run", [event("start", 0), *longest, dispatch, last], age_s=0)
        write_consortium(tmp_path / name / "consortium", hospital("a"))

    named = [bool(findings(look(tmp_path / name, answer(a="online")), "a")) for name in ("early", "late")]

    assert named == [False, True]


def test_revoked_hospital_that_is_still_connected_is_bad(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("out", revoked="2026-05-01"))

    overview = look(tmp_path, answer(out="online"))

    assert [item.weight for item in findings(overview, "out")] == [Weight.BAD]
    assert not findings(look(tmp_path, answer(out="offline")), "out")


def test_revoked_hospital_is_found_under_a_retired_key_too(tmp_path: Path) -> None:
    retired = RetiredKey(public_key=hospital("other").public_key, node_id="node-of-out")
    write_consortium(tmp_path / "consortium", hospital("out", revoked="2026-05-01", node_id="", retired=(retired,)))

    overview = look(tmp_path, answer(out="online"))

    assert [item.weight for item in findings(overview, "out")] == [Weight.BAD]


@pytest.mark.parametrize(("days", "expected"), [(90, []), (31, []), (29, ["warn"]), (1, ["warn"])], ids=str)
def test_certificate_is_named_below_thirty_days(tmp_path: Path, days: int, expected: list[str]) -> None:
    found(tmp_path / "consortium", days=days)

    overview = lookout(tmp_path, now=time.time()).look()

    assert [item.weight.value for item in findings(overview, "certificate 'server'")] == expected


def test_certificate_that_has_ended_is_bad(tmp_path: Path) -> None:
    found(tmp_path / "consortium", days=10)
    (end,) = [item.ends for item in look(tmp_path).certificates if item.name == "server"]

    (finding,) = findings(lookout(tmp_path, now=(end or 0) + HOUR_S).look(), "certificate 'server'")

    assert finding.weight is Weight.BAD
    assert "It ended 1 h ago" in finding.text
    assert "aegis enrol renew" in finding.text


def test_missing_server_certificate_is_named_and_others_are_merely_unknown(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium")

    overview = look(tmp_path)

    assert [item.ends for item in overview.certificates] == [None, None, None]
    assert [item.subject for item in find(overview)] == ["certificate 'server'"]


def test_missing_consortium_is_told(tmp_path: Path) -> None:
    overview = look(tmp_path)

    assert (overview.consortium, overview.seats) == ("", ())
    assert "aegis enrol init" in findings(overview, "what is shown")[0].text


def test_run_that_stands_still_is_named(tmp_path: Path) -> None:
    for name, age_s in (("still", 3 * HOUR_S), ("moving", 1000.0)):
        write_run(tmp_path / name / "runs", "run", [event("start", 0), step(5, 1, a=0)], age_s=age_s)

    told = {name: [item.text for item in findings(look(tmp_path / name), "run run")] for name in ("still", "moving")}

    assert told["still"] == ["It has written nothing for 3 h. If its server was killed, resume the run."]
    assert told["moving"] == []


def test_failed_run_is_bad_and_says_why(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium")
    end = event("finish", 9, status="failed", reason="Expected 3 hospitals.")
    write_run(tmp_path / "runs", "run", [event("start", 0), end], age_s=9 * HOUR_S)

    (failed,) = [item for item in findings(look(tmp_path), "run run") if item.weight is Weight.BAD]

    assert failed.text == "It failed: Expected 3 hospitals."


def test_hospital_that_nobody_enrolled_is_named_while_a_run_goes_on(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"))
    enrolled = [event("enrol", 1, hospital=name, examples=1) for name in ("a", "stranger")]
    write_run(tmp_path / "runs", "run", [event("start", 0), *enrolled])

    overview = look(tmp_path, answer(a="online"))

    assert findings(overview, "stranger")[0].text == "It is named in run run and not in consortium.toml."
    assert not findings(overview, "a")


def test_worst_findings_come_first(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("gone"), hospital("out", revoked="2026-05-01"))

    weights = [item.weight for item in find(look(tmp_path, answer(gone="offline", out="online")))]

    assert weights == sorted(weights)
    assert set(weights) == {Weight.BAD, Weight.WARN}


def test_unreadable_folder_of_runs_is_told_and_the_rest_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"))
    (tmp_path / "runs").mkdir()

    def refuse(path: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)

    overview = look(tmp_path, answer(a="online"))

    assert connections(overview) == {"a": Connection.ONLINE}
    assert overview.troubles == ("The folder of runs cannot be read: Permission denied.",)
