"""What the experiment sees of a federation, from made-up engines, histories and ledgers; and how it ends when told."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.experiments import deployment_watch
from deploy.experiments.deployment_play import ended_by_signals
from deploy.experiments.deployment_stage import HOSPITALS, Stage
from deploy.experiments.deployment_watch import await_contribution, events, find_contradictions
from federation.errors import RunFailedError

A, B, C = HOSPITALS
Engine = Callable[..., str]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(deployment_watch, "_AGAIN_S", 0.0)
    return Stage(folder=tmp_path, ports={})


def failing(times: int, text: str = "") -> tuple[Engine, list[int]]:
    """Return an engine that fails so often before it answers, and the list of its calls."""
    calls: list[int] = []

    def docker(*_: str) -> str:
        calls.append(1)
        if len(calls) <= times:
            raise RunFailedError("no such container")
        return text

    return docker, calls


def apply(version: int, *rows: tuple[str, int]) -> dict[str, Any]:
    return {
        "event": "apply",
        "version": version,
        "updates": [{"hospital": name, "number": number} for name, number in rows],
    }


def dispatch(hospital: str, number: int, task: str = "train") -> dict[str, Any]:
    return {"event": "dispatch", "task": task, "hospital": hospital, "version": 0, "number": number}


def test_events_are_read_and_half_a_line_is_none(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    docker, _ = failing(0, '{"event": "start"}\n{"event": "apply"}\n{"eve')
    monkeypatch.setattr(deployment_watch, "docker", docker)

    assert [event["event"] for event in events(stage)] == ["start", "apply"]


def test_no_file_means_no_events(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    docker, calls = failing(0, "")
    monkeypatch.setattr(deployment_watch, "docker", docker)

    assert events(stage) == []
    assert len(calls) == 1


def test_engine_that_fails_twice_is_asked_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    docker, calls = failing(2, '{"event": "start"}\n')
    monkeypatch.setattr(deployment_watch, "docker", docker)

    assert len(events(stage)) == 1
    assert len(calls) == 3


def test_engine_that_keeps_failing_is_an_error_and_not_an_empty_history(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker, calls = failing(9)
    monkeypatch.setattr(deployment_watch, "docker", docker)

    with pytest.raises(RunFailedError, match="no such container"):
        events(stage)

    assert len(calls) == 3


GOOD = [apply(1, (A, 1), (B, 2)), apply(2, (C, 3), (A, 4))]
BOOKED = {A: 2, B: 1, C: 1}


@pytest.mark.parametrize(
    ("seen", "booked", "found"),
    [
        (GOOD, BOOKED, []),
        (GOOD, {A: 9, B: 9, C: 9}, []),
        ([], BOOKED, ["no versions"]),
        (GOOD[1:], BOOKED, ["versions [2]"]),
        ([GOOD[0], apply(2, (C, 3), (A, 1))], BOOKED, [f"update 1 of {A} is in the model 2 times"]),
        (GOOD, {**BOOKED, A: 1}, [f"{A} has booked 1 updates, and 2 are in the model"]),
        (GOOD, {A: 2, B: 1}, [f"the ledger of {C}: not sound"]),
    ],
)
def test_contradictions_are_found_and_no_others(
    seen: list[Any], booked: dict[str, int], found: list[str], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ledger(_: Stage, hospital: str) -> dict[str, Any]:
        if hospital not in booked:
            raise RunFailedError("not sound")
        return {"data-sets": [{"data-set": "chest", "releases": booked[hospital]}]}

    monkeypatch.setattr(deployment_watch, "events", lambda _: seen)
    monkeypatch.setattr(deployment_watch, "ledger", ledger)

    assert find_contradictions(stage) == found


@pytest.mark.parametrize(
    ("later", "counts"),
    [
        ([dispatch(A, 7), apply(2, (A, 7))], True),
        ([dispatch(A, 7), dispatch(B, 8), apply(2, (B, 8)), apply(3, (A, 7))], True),
        ([apply(2, (A, 1))], False),
        ([dispatch(A, 7), apply(2, (A, 1))], False),
        ([dispatch(A, 7)], False),
        ([dispatch(A, 7, "evaluate"), apply(2, (A, 7))], False),
        ([dispatch(B, 7), apply(2, (B, 7))], False),
        ([apply(2, (A, 7)), dispatch(A, 7)], False),
    ],
    ids=["new", "new among others", "old", "old after new task", "not yet", "evaluation", "another's", "before"],
)
def test_contribution_counts_only_when_it_was_asked_for_after_the_wait_began(
    later: list[Any], counts: bool, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([[dispatch(A, 1)]])
    monkeypatch.setattr(deployment_watch, "events", lambda _: next(looks, [dispatch(A, 1), *later]))
    monkeypatch.setattr(deployment_watch, "wait_until", lambda fact, *_, **__: float(fact()))

    assert await_contribution(stage, A) == float(counts)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_by_an_exception_once_and_its_handler_is_as_before(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    cleaned: list[int] = []

    def be_told() -> None:
        with ended_by_signals():
            try:
                os.kill(os.getpid(), number)
            finally:
                os.kill(os.getpid(), number)
                cleaned.append(number)

    with pytest.raises(SystemExit) as ended:
        be_told()

    assert cleaned == [number]
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is before


def test_engine_is_asked_for_files_that_are_there_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def docker(*command: str) -> str:
        asked.append(command)
        return ""

    monkeypatch.setattr(deployment_watch, "docker", docker)

    events(stage)

    assert "test -e" in asked[0][-1]
    assert json.dumps(asked[0]).count("exit 3") == 1
