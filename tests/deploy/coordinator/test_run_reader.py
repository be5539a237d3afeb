"""A run as it is read: from what a real, scripted run has written, in progress and ended, and from damaged folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.coordinator.run import Standing
from deploy.coordinator.run_reader import RunReader
from federation.errors import RunFailedError
from server_app.run_folder import RunFolder
from server_app.summary import Summary
from tests.deploy.coordinator.made_up import NOW, evaluation, event, step, write_run
from tests.doubles import Hospitals
from tests.server_app.runs import ASYNCHRONOUS, run, seconds

PRIVATE = {"privacy__mechanism": "update-gaussian", "aggregation__rounds": 4, **ASYNCHRONOUS["buffered"]}


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Path, Summary]:
    summary = run(tmp_path, seconds(5, 10, 40), Hospitals(caps={0: 0.4}), **PRIVATE)
    return tmp_path / "run", summary


def interrupt(folder: Path) -> None:
    """Leave the run as a server would that was killed before its end, and so wrote no result."""
    log = folder / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"finish"' not in line))
    (folder / "summary.json").unlink()


def test_ended_run_is_told_as_its_summary_tells_it(finished: tuple[Path, Summary]) -> None:
    folder, summary = finished

    found = RunReader(folder).read()

    assert (found.standing, found.version, found.rounds) == (Standing.COMPLETED, 4, 4)
    assert {item.hospital: item.updates for item in found.participants} == {
        name: part.updates for name, part in summary.per_hospital.items()
    }
    assert summary.staleness
    assert (found.staleness, found.stalest) == (summary.staleness.mean, summary.staleness.max)
    assert found.worst
    assert found.worst.hospital == summary.worst_hospital
    assert (list(found.curve), dict(found.refused), found.doubts) == (summary.curve, summary.refused, ())


def test_run_in_progress_is_told_by_log_and_checkpoint_as_its_summary_would(finished: tuple[Path, Summary]) -> None:
    folder, summary = finished
    interrupt(folder)

    found = RunReader(folder).read()

    assert (found.standing, found.version) == (Standing.IN_PROGRESS, summary.model_version)
    for item in found.participants:
        part = summary.per_hospital[item.hospital]
        assert (item.updates, item.dispatched, item.examples) == (part.updates, part.dispatched, part.examples)
        assert item.staleness == (part.staleness.mean if part.staleness else None)
        assert item.refused == part.refused
    assert list(found.curve) == [
        point.model_copy(update={"elapsed_s": found.curve[index].elapsed_s})
        for index, point in enumerate(summary.curve)
    ]


def test_budgets_are_those_of_the_mirror_in_both_sources(finished: tuple[Path, Summary]) -> None:
    folder, summary = finished
    ended = {item.hospital: item.budget for item in RunReader(folder).read().participants}
    interrupt(folder)

    going_on = {item.hospital: item.budget for item in RunReader(folder).read().participants}

    ledger = summary.per_hospital["hospital-000"].ledger
    budget = ended["hospital-000"]
    assert ledger
    assert budget
    assert (budget.spent, budget.cap, budget.left) == (ledger.spent, ledger.cap, ledger.left)
    assert (budget.paused, budget.holds, budget.delta) == (True, True, ledger.delta)
    assert going_on["hospital-000"] == budget


def test_damaged_checkpoint_is_passed_over_for_the_one_before(finished: tuple[Path, Summary]) -> None:
    folder, _ = finished
    interrupt(folder)
    checkpoints = sorted((folder / "checkpoints").iterdir())
    checkpoints[-1].write_bytes(b"no checkpoint")

    found = RunReader(folder).read()

    assert len(checkpoints) > 1
    assert found.participants[0].budget is not None


def test_checkpoint_is_read_once(finished: tuple[Path, Summary]) -> None:
    folder, _ = finished
    interrupt(folder)
    reader = RunReader(folder)
    before = [item.budget for item in reader.read().participants]
    max((folder / "checkpoints").iterdir()).write_bytes(b"no checkpoint any more")

    assert [item.budget for item in reader.read().participants] == before
    assert [item.budget for item in RunReader(folder).read().participants] != before


def test_summary_of_an_earlier_session_does_not_end_a_run_that_was_resumed(finished: tuple[Path, Summary]) -> None:
    folder, _ = finished
    with (folder / "events.jsonl").open("a") as log:
        log.write('{"event": "resume", "elapsed_s": 0, "wall_s": 0, "version": 2, "changed": []}\n')

    found = RunReader(folder).read()

    assert (found.standing, found.version) == (Standing.IN_PROGRESS, 2)


def test_failed_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError):
        run(tmp_path, seconds(5), Hospitals(), run__hospitals=3, run__min_hospitals=3, run__wait_s=2.0)

    found = RunReader(tmp_path / "run").read()

    assert found.standing is Standing.FAILED
    assert "Expected" in found.reason


def test_configured_hospital_that_never_came_is_among_the_participants(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", [event("start", 0)], run__hospital_ids="b, a10, a2")

    found = RunReader(folder).read()

    assert [(item.hospital, item.examples) for item in found.participants] == [("a2", 0), ("a10", 0), ("b", 0)]


def test_worst_hospital_of_a_run_in_progress_is_that_of_the_newest_evaluation(tmp_path: Path) -> None:
    events = [
        event("start", 0),
        step(1, 1, a=0),
        evaluation(2, 0, 0.2, a=0.1, b=0.4),
        evaluation(3, 1, 0.6, a=0.7, b=0.5),
    ]

    found = RunReader(write_run(tmp_path, "run", events)).read()

    assert found.worst
    assert (found.worst.hospital, found.worst.accuracy, found.accuracy) == ("b", 0.5, 0.6)
    assert found.basis.startswith("version 1 ")


def test_version_evaluated_by_no_hospital_leaves_the_last_that_was(tmp_path: Path) -> None:
    events = [event("start", 0), evaluation(2, 1, 0.2, a=0.1), evaluation(3, 2, 0.6)]

    found = RunReader(write_run(tmp_path, "run", events)).read()

    assert found.worst
    assert (found.worst.accuracy, found.accuracy) == (0.1, 0.6)


def test_patience_is_the_servers_own(tmp_path: Path) -> None:
    task = {"task": "train", "hospital": "a", "version": 0}
    events = [event("start", 0), event("dispatch", 0, **task), event("update", 1000, hospital="a")]

    long = RunReader(write_run(tmp_path, "long", events, run__wait_s=600.0)).read()
    short = RunReader(write_run(tmp_path, "short", events[:2], run__wait_s=600.0)).read()

    assert (long.patience_s, short.patience_s) == (1500, 600)


def test_waiting_hospital_is_told_with_the_time_of_its_task(tmp_path: Path) -> None:
    task = {"task": "train", "hospital": "a", "version": 3}
    events = [event("start", 0), event("dispatch", 100, **task), event("enrol", 400, hospital="b", examples=1)]

    found = RunReader(write_run(tmp_path, "run", events, age_s=50)).read()

    waiting = found.participants[0].waiting
    assert waiting
    assert (waiting.kind, waiting.version, waiting.sent) == ("train", 3, NOW - 350)


@pytest.mark.parametrize("content", [None, "no toml", "[run]\nunheard-of = 1\n"])
def test_unusable_configuration_is_a_doubt_and_no_end(tmp_path: Path, content: str | None) -> None:
    folder = write_run(tmp_path, "run", [event("start", 0), step(1, 1, a=0)])
    if content is None:
        (folder / "config.toml").unlink()
    else:
        (folder / "config.toml").write_text(content)

    found = RunReader(folder).read()

    assert (found.version, found.rounds) == (1, None)
    assert "config.toml" in found.doubts[0]


@pytest.mark.parametrize("content", ["{}", "\x00"])
def test_unusable_summary_leaves_what_the_log_tells(tmp_path: Path, content: str) -> None:
    events = [event("start", 0), step(1, 1, a=0), event("finish", 2, status="failed", reason="why")]
    folder = write_run(tmp_path, "run", events)
    (folder / "summary.json").write_text(content)

    found = RunReader(folder).read()

    assert (found.standing, found.reason, found.version) == (Standing.FAILED, "why", 1)
    assert "summary.json" in found.doubts[0]


def test_lines_that_are_no_events_are_a_doubt(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", [event("start", 0)], tail="garbage\n{}\n")

    assert "2 lines of events.jsonl" in RunReader(folder).read().doubts[0]


def test_summary_alone_is_enough(finished: tuple[Path, Summary]) -> None:
    folder, summary = finished
    (folder / "events.jsonl").unlink()
    shutil.rmtree(folder / "checkpoints")

    found = RunReader(folder).read()

    assert (found.standing, found.version) == (Standing.COMPLETED, summary.model_version)


def test_summary_is_read_anew_when_it_was_written_anew(finished: tuple[Path, Summary]) -> None:
    folder, summary = finished
    reader = RunReader(folder)
    before = reader.read().version
    changed = summary.model_copy(update={"model_version": 99})
    RunFolder(folder).summary.write_text(changed.model_dump_json())

    assert (before, reader.read().version) == (4, 99)
