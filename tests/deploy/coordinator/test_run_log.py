"""What the log of a run tells: counts, ages, open tasks, and times across restarts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from deploy.coordinator.run_log import RunLog
from tests.deploy.coordinator.made_up import NOW, as_lines, evaluation, event, step


def read(folder: Path, *events: dict[str, Any], modified: float = NOW) -> RunLog:
    path = folder / "events.jsonl"
    path.write_text(as_lines(events))
    os.utime(path, (modified, modified))
    log = RunLog(path)
    log.read_on()
    return log


def start(version: int = 0) -> dict[str, Any]:
    return event("resume" if version else "start", 0, version=version, changed=[])


def dispatch(at_s: float, hospital: str, task: str = "train", version: int = 0) -> dict[str, Any]:
    return event("dispatch", at_s, task=task, hospital=hospital, version=version, number=1)


def test_applied_updates_are_counted_with_their_ages(tmp_path: Path) -> None:
    log = read(tmp_path, start(), step(10, 1, a=0, b=0), step(20, 2, a=3))

    assert log.version == 2
    assert log.ages() == {"a": [0, 3], "b": [0]}


def test_log_is_followed_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(as_lines([start(), step(10, 1, a=0)]) + '{"event": "apply", ')
    log = RunLog(path)
    log.read_on()
    before = (log.version, log.damaged)

    path.write_text(as_lines([start(), step(10, 1, a=0), step(20, 2, a=1)]) + "garbage\n")
    log.read_on()

    assert before == (1, 0)
    assert (log.version, log.ages(), log.damaged) == (2, {"a": [0, 1]}, 1)


def test_versions_made_again_after_a_resume_count_once(tmp_path: Path) -> None:
    first = [start(), step(1, 1, a=0), evaluation(2, 1, 0.5), step(3, 2, a=0), evaluation(4, 2, 0.6), step(5, 3, a=7)]

    log = read(tmp_path, *first, start(1), step(6, 2, b=1))

    assert (log.version, log.ages(), list(log.curve)) == (2, {"a": [0], "b": [1]}, [1])


def test_resume_after_an_end_goes_on(tmp_path: Path) -> None:
    log = read(tmp_path, start(), step(1, 1, a=0), event("finish", 2, status="stopped", reason=""), start(1))

    assert log.end is None


def test_task_is_open_until_it_is_answered(tmp_path: Path) -> None:
    log = read(tmp_path, start(), dispatch(1, "a"), dispatch(2, "b"), dispatch(3, "c"), dispatch(4, "d"))
    asked = dict(log.open)
    for name, answer in {
        "a": event("update", 9, hospital="a"),
        "b": event("refusal", 9, hospital="b", reason="too-stale"),
        "c": event("ready", 9, hospital="c"),
    }.items():
        again = read(tmp_path, start(), *(dispatch(1, other) for other in "abcd"), answer)

        assert set(again.open) == set("abcd") - {name}
        assert set(again.answered) == {name}

    assert {name: (task.kind, task.sent.wall_s) for name, task in asked.items()} == {
        "a": ("train", 1),
        "b": ("train", 2),
        "c": ("train", 3),
        "d": ("train", 4),
    }


def test_spent_budget_answers_a_task(tmp_path: Path) -> None:
    log = read(tmp_path, start(), dispatch(1, "a"), event("pause", 5, hospital="a"))

    assert log.open == {}


@pytest.mark.parametrize("reason", ["node-lost", "interrupted", "evaluation:node-lost"])
def test_lost_task_is_over_and_is_no_sign_of_life(tmp_path: Path, reason: str) -> None:
    log = read(tmp_path, start(), dispatch(1, "a"), event("refusal", 99, hospital="a", reason=reason))

    assert (log.open, log.answered) == ({}, {})
    assert log.refused_by["a"] == {reason: 1}


def test_refusal_of_an_unknown_sender_counts_for_no_hospital(tmp_path: Path) -> None:
    log = read(tmp_path, start(), event("refusal", 1, hospital=None, reason="unknown-node"))

    assert (log.refused, log.refused_by) == ({"unknown-node": 1}, {})


def test_longest_task_is_from_sending_to_whatever_came_of_it(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        start(),
        dispatch(1, "a"),
        event("update", 41, hospital="a"),
        dispatch(41, "b"),
        event("refusal", 141, hospital="b", reason="too-stale"),
        dispatch(141, "a", "evaluate"),
        event("refusal", 900, hospital="a", reason="evaluation:site-error"),
    )

    assert log.longest_task_s == 100


def test_discard_is_no_task_that_is_waited_for(tmp_path: Path) -> None:
    log = read(tmp_path, start(), dispatch(1, "a", "train.discard"))

    assert (log.open, log.dispatched) == ({}, {})


def test_evaluation_answers_the_evaluation_tasks_of_its_version_only(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        start(),
        dispatch(1, "a", "evaluate", 1),
        dispatch(1, "b", "train", 1),
        dispatch(1, "c", "evaluate", 1),
        evaluation(5, 1, 0.5, a=0.4, b=0.3),
    )

    assert set(log.open) == {"b", "c"}


def test_late_scores_join_the_evaluation_of_their_version(tmp_path: Path) -> None:
    late = {"hospital": "b", "split": "validation", "accuracy": 0.3, "auroc": None, "loss": None, "examples": 5}

    log = read(tmp_path, start(), evaluation(1, 4, 0.5, a=0.4), event("late-scores", 2, version=4, **late))
    other = read(
        tmp_path, start(), evaluation(1, 4, 0.5, a=0.4), event("late-scores", 2, version=4, **{**late, "split": "test"})
    )

    assert {name: found.accuracy for name, found in log.curve[4].hospitals.items()} == {"a": 0.4, "b": 0.3}
    assert list(other.curve[4].hospitals) == ["a"]


def test_last_event_happened_when_the_file_was_last_written(tmp_path: Path) -> None:
    log = read(tmp_path, start(), event("update", 100, hospital="a"), step(130, 1, a=0), modified=NOW - 7)

    assert log.newest == NOW - 7
    assert log.time_of(log.updated["a"]) == NOW - 37


def test_event_of_an_earlier_session_is_placed_before_the_next_one_began(tmp_path: Path) -> None:
    log = read(tmp_path, start(), event("update", 100, hospital="a"), step(130, 1, a=0), start(1), step(50, 2, b=0))

    assert log.time_of(log.updated["a"]) == NOW - 50 - 30


def test_session_that_was_seen_keeps_its_time_when_the_next_one_begins_much_later(tmp_path: Path) -> None:
    log = read(tmp_path, start(), event("update", 100, hospital="a"), modified=NOW - 5000)
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write(as_lines([start(1), step(50, 2, b=0)]))
    os.utime(tmp_path / "events.jsonl", (NOW, NOW))

    log.read_on()

    assert log.time_of(log.updated["a"]) == NOW - 5000


def test_log_of_another_run_of_the_name_replaces_everything(tmp_path: Path) -> None:
    log = read(tmp_path, start(), step(1, 1, a=0), event("refusal", 2, hospital="a", reason="malformed"))
    (tmp_path / "events.jsonl").rename(tmp_path / "older")
    (tmp_path / "events.jsonl").write_text(as_lines([start(), dispatch(1, "b")]))

    log.read_on()

    assert (log.version, log.ages(), log.refused, set(log.open)) == (0, {}, {}, {"b"})


def test_missing_log_tells_nothing(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "events.jsonl")

    log.read_on()

    assert (log.sessions, log.newest, log.version) == (0, None, 0)
