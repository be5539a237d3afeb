"""Updates that wait on the disk survive the server: whatever was held is applied once, whenever it is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error

from federation.errors import CheckpointError, SiteErrorCode
from federation.records.answers import ModelUpdate
from server_app import checkpoint as checkpoint_module
from server_app import session
from server_app.aggregation.rule import Update
from server_app.engine import Engine
from server_app.evaluation import EvaluationDesk
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualClock
from server_app.summary import RunStatus, Summary
from server_app.update_buffer import DiskBuffer
from tests.doubles import Hospitals
from tests.server_app.killing import Point, break_off
from tests.server_app.runs import applied, events, final_digest, run

TIMINGS = [
    SiteTiming(train_s=10, evaluate_s=1),
    SiteTiming(train_s=10, evaluate_s=1),
    SiteTiming(train_s=13, evaluate_s=1, bytes_per_s=60.0),
    SiteTiming(train_s=31, evaluate_s=45),
]
RULES: dict[str, dict[str, Any]] = {
    "fedavg": {"aggregation__rounds": 4},
    "fedasync": {"aggregation__rule": "fedasync", "aggregation__rounds": 9},
    "buffered": {"aggregation__rule": "buffered", "aggregation__buffer_size": 3, "aggregation__rounds": 5},
    "semi-synchronous": {
        "aggregation__rule": "semi-synchronous", "aggregation__period_s": 25.0, "aggregation__rounds": 5,
    },
}  # fmt: skip
POINTS = [
    Point(DiskBuffer, "hold", 2, False),
    Point(DiskBuffer, "hold", 2, True),
    Point(DiskBuffer, "hold", 5, True),
    Point(DiskBuffer, "drop", 3, False),
    Point(DiskBuffer, "drop", 3, True),
    Point(Engine, "_apply", 3, False),
    Point(Engine, "_record_application", 3, True),
    Point(Engine, "_send_training", 7, True),
    Point(checkpoint_module, "write_durably", 3, False),
    Point(EvaluationDesk, "settle", 2, True),
]
PRIVATE: dict[str, Any] = {"privacy__mechanism": "update-gaussian", "run__evaluate_every": 2}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Let runs keep updates on the disk, and give hospital and number of those that were held."""
    found: list[tuple[str, int]] = []
    hold = DiskBuffer.hold

    def watch(buffer: DiskBuffer, update: Update, declaration: Any) -> Update:
        kept = hold(buffer, update, declaration)
        found.append((update.hospital_id, update.number))
        return kept

    monkeypatch.setattr(DiskBuffer, "hold", watch)
    monkeypatch.setattr(session, "make_buffer", lambda clock, folder: DiskBuffer(folder.buffer))
    return found


@pytest.fixture(params=[True, False], ids=["hospitals begin again", "hospitals work on"])
def replays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the clock promise that hospitals begin again with the server, or not, as in a deployment."""
    monkeypatch.setattr(VirtualClock, "replays", request.param)
    answer: bool = request.param
    return answer


def require_each_once(folder: Path, held: list[tuple[str, int]], summary: Summary) -> None:
    """Check that every update that was held is applied, and none twice.

    A version is durable before the log tells of it: of one that was made right before the server died, the log tells
    nothing, and only the counts show that its updates were applied.
    """
    told = applied(folder)
    rows = [row for version in told.values() for row in version]
    numbers = [(row["hospital"], row["number"]) for row in rows]
    untold = set(held) - set(numbers)
    assert len(numbers) == len(set(numbers))
    assert summary.model_version - len(told) <= 1
    assert bool(untold) <= (summary.model_version > len(told))
    assert summary.updates_applied - len(numbers) == (len(untold) or summary.model_version - len(told))
    assert all(row["staleness"] >= 0 for row in rows)
    assert not list((folder / "run" / "buffer").iterdir())


@pytest.mark.usefixtures("replays")
@pytest.mark.parametrize(
    ("rule", "point"),
    # Under `fedasync` every update completes a version, and none is held.
    [(rule, point) for rule in RULES for point in POINTS if (rule, point.name) != ("fedasync", "hold")],
    ids=lambda part: part if isinstance(part, str) else str(part),
)
def test_every_update_that_was_held_is_applied_once_wherever_the_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[tuple[str, int]], rule: str, point: Point
) -> None:
    hospitals, settings = Hospitals(), {**RULES[rule], **PRIVATE}
    break_off(monkeypatch, point, lambda: run(tmp_path, TIMINGS, hospitals, **settings))

    summary = run(tmp_path, TIMINGS, hospitals, run__resume=True, **settings)

    assert summary.model_version == settings["aggregation__rounds"]
    require_each_once(tmp_path, held, summary)
    assert not any(item.ledger.contradictions for item in summary.per_hospital.values() if item.ledger)


@pytest.mark.parametrize("release", ["immediate", "two-phase"])
def test_tasks_that_a_deployed_server_cannot_hear_of_any_more_are_counted_and_their_hospitals_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[tuple[str, int]], release: str
) -> None:
    monkeypatch.setattr(VirtualClock, "replays", False)
    hospitals, settings = Hospitals(), {**RULES["buffered"], **PRIVATE, "aggregation__release": release}
    break_off(
        monkeypatch,
        Point(Engine, "_record_application", 2, True),
        lambda: run(tmp_path, TIMINGS, hospitals, **settings),
    )
    log = events(tmp_path, "dispatch", "update")
    sent = {event["number"] for event in log if event["event"] == "dispatch" and event["task"] == "train"}
    open_then = len(sent - {event["number"] for event in log if event["event"] == "update"})

    summary = run(tmp_path, TIMINGS, hospitals, run__resume=True, **settings)

    assert open_then > 0
    assert summary.refused["interrupted"] == open_then
    assert all(item.updates for item in summary.per_hospital.values())
    require_each_once(tmp_path, held, summary)


@pytest.mark.usefixtures("replays")
@pytest.mark.parametrize("rule", ["fedavg", "buffered", "semi-synchronous"])
def test_update_that_waits_through_several_restarts_is_booked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[tuple[str, int]], rule: str
) -> None:
    hospitals, settings = Hospitals(), {**RULES[rule], **PRIVATE}
    for resume in (False, True):
        killed = Point(DiskBuffer, "hold", 1, True)
        break_off(monkeypatch, killed, lambda: run(tmp_path, TIMINGS, hospitals, run__resume=resume, **settings))  # noqa: B023

    summary = run(tmp_path, TIMINGS, hospitals, run__resume=True, **settings)

    require_each_once(tmp_path, held, summary)
    assert not any(item.ledger.contradictions for item in summary.per_hospital.values() if item.ledger)
    assert "budget-contradiction" not in summary.refused


@pytest.mark.usefixtures("held", "replays")
@pytest.mark.parametrize("rule", ["fedavg", "buffered"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_paid_update_of_a_round_that_was_too_small_survives_the_server_and_is_booked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, call: int
) -> None:
    failures = [0]

    def fail_thrice(answer: ModelUpdate) -> ModelUpdate | Error:
        failures[0] += 1
        return Error(int(SiteErrorCode.TRAINING_FAILED), "x") if failures[0] <= 3 else answer

    settings = {**RULES[rule], **PRIVATE, "aggregation__rounds": 2, "aggregation__min_updates": 2}
    settings |= {"aggregation__max_empty_rounds": 9, "aggregation__buffer_size": 2}
    hospitals = Hospitals(spoil={1: fail_thrice})
    broken_off = Point(Engine, "_close_empty_round", call, True)
    break_off(monkeypatch, broken_off, lambda: run(tmp_path, TIMINGS[:2], hospitals, **settings))

    summary = run(tmp_path, TIMINGS[:2], hospitals, run__resume=True, **settings)

    assert (summary.model_version, summary.updates_applied) == (2, 4)
    assert hospitals.trained.count(("hospital-000", 0)) == 1
    first, second = (summary.per_hospital[name].ledger for name in ("hospital-000", "hospital-001"))
    assert first is not None
    assert second is not None
    assert (first.releases, first.contradictions, second.contradictions) == (2, 0, 0)
    assert "round-too-small" not in summary.refused


@pytest.mark.usefixtures("held", "replays")
@pytest.mark.parametrize("rule", ["fedavg", "buffered"])
def test_updates_that_waited_make_a_version_although_nobody_can_be_asked_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    settings = {**RULES[rule], **PRIVATE, "aggregation__buffer_size": 2, "run__hospital_evaluation": False}
    hospitals = Hospitals(caps={0: 0.2, 1: 0.2})
    killed = Point(Engine, "_apply", 1, False)
    break_off(monkeypatch, killed, lambda: run(tmp_path, TIMINGS[:2], hospitals, **settings))

    summary = run(tmp_path, TIMINGS[:2], hospitals, run__resume=True, **settings)

    assert (summary.model_version, summary.updates_applied, summary.refused) == (1, 2, {})
    assert summary.reason.endswith("is the last: every hospital has spent its privacy budget.")


def test_update_that_is_left_when_the_budgets_are_spent_is_counted_and_its_file_deleted(
    tmp_path: Path, held: list[tuple[str, int]]
) -> None:
    def spend_by_version_one(answer: ModelUpdate) -> ModelUpdate | Error:
        return Error(int(SiteErrorCode.BUDGET_EXHAUSTED), "x") if answer.model_version else answer

    hospitals = Hospitals(spoil={1: spend_by_version_one})

    summary = run(tmp_path, TIMINGS[:2], hospitals, **RULES["fedavg"], **PRIVATE, aggregation__min_updates=2)

    assert (summary.status, summary.model_version, summary.updates_applied) == (RunStatus.COMPLETED, 1, 2)
    assert (summary.refused, len(held)) == ({"round-too-small": 1}, 3)
    assert not list((tmp_path / "run" / "buffer").iterdir())


def test_updates_that_wait_for_a_version_that_is_not_wanted_any_more_are_counted_and_their_files_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr(VirtualClock, "replays", False)
    killed = Point(DiskBuffer, "hold", 5, True)
    break_off(monkeypatch, killed, lambda: run(tmp_path, TIMINGS, **RULES["buffered"]))

    summary = run(tmp_path, TIMINGS, **RULES["buffered"] | {"aggregation__rounds": 1}, run__resume=True)

    assert (summary.model_version, summary.updates_applied, len(held)) == (1, 3, 5)
    assert summary.refused["round-too-small"] == 2
    assert not list((tmp_path / "run" / "buffer").iterdir())


@pytest.mark.usefixtures("held")
def test_disk_changes_nothing_about_an_unbroken_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "disk", TIMINGS, **RULES["buffered"])
    monkeypatch.undo()
    monkeypatch.setattr("server_app.report.write_report", lambda summary, path: None)

    run(tmp_path / "memory", TIMINGS, **RULES["buffered"])

    assert final_digest(tmp_path / "disk") == final_digest(tmp_path / "memory")
    assert not (tmp_path / "memory" / "run" / "buffer").exists()


@pytest.mark.usefixtures("held")
def test_damaged_update_that_waits_stops_the_resume_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_off(monkeypatch, Point(DiskBuffer, "hold", 2, True), lambda: run(tmp_path, TIMINGS, **RULES["buffered"]))
    checkpoints, buffer = (tmp_path / "run" / name for name in ("checkpoints", "buffer"))
    (first, _) = sorted(buffer.iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    before = {path: path.read_bytes() for folder in (checkpoints, buffer) for path in folder.iterdir()}

    with pytest.raises(CheckpointError, match=rf"{first.name} holds an update that waits.* Delete it to go on"):
        run(tmp_path, TIMINGS, run__resume=True, **RULES["buffered"])

    assert {path: path.read_bytes() for folder in (checkpoints, buffer) for path in folder.iterdir()} == before
    first.unlink()
    assert run(tmp_path, TIMINGS, run__resume=True, **RULES["buffered"]).model_version == 5
