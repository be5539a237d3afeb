"""The numbers for Prometheus, and that what is not known has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.coordinator.measures import measure
from deploy.coordinator.superlink import Answer
from deploy.web.metrics import render
from tests.deploy.coordinator.made_up import (
    HOSTILE,
    NOW,
    answer,
    evaluation,
    event,
    hospital,
    lookout,
    step,
    write_consortium,
    write_run,
)
from tests.deploy.trust.founded import found
from tests.doubles import Hospitals
from tests.server_app.runs import run, seconds


def lines(folder: Path, said: Answer | None = None) -> set[str]:
    return set(render(measure(lookout(folder, said).look())).splitlines())


def names(found: set[str]) -> set[str]:
    return {line.partition("{")[0].partition(" ")[0] for line in found if not line.startswith("#")}


def test_numbers_of_a_run_in_progress(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"), hospital("b"), hospital("out", revoked="2026-05-01"))
    events = [
        event("start", 0),
        event("update", 10, hospital="a"),
        step(20, 1, a=0),
        step(30, 2, a=1, b=4),
        event("refusal", 40, hospital="b", reason="too-stale"),
        event("refusal", 41, hospital=None, reason="too-stale"),
        evaluation(50, 2, 0.75, a=0.5, b=0.25),
    ]
    write_run(tmp_path / "runs", "lungs", events, age_s=100)

    found = lines(tmp_path, answer(a="online", b="offline"))

    assert found >= {
        'aegis_run_info{run="lungs",status="in progress"} 1',
        "aegis_superlink_up 1",
        'aegis_hospitals{state="online"} 1',
        'aegis_hospitals{state="offline"} 1',
        'aegis_hospitals{state="revoked"} 1',
        'aegis_hospitals{state="unknown"} 0',
        'aegis_hospital_online{hospital="a"} 1',
        'aegis_hospital_online{hospital="b"} 0',
        'aegis_hospital_last_update_seconds{hospital="a"} 140',
        "aegis_model_version 2",
        'aegis_updates_applied_total{hospital="a"} 2',
        'aegis_updates_applied_total{hospital="b"} 1',
        'aegis_updates_refused_total{code="too-stale"} 2',
        f"aegis_staleness_mean {5 / 3!r}",
        "aegis_accuracy 0.75",
        "aegis_worst_accuracy 0.25",
        'aegis_findings{weight="warn"} 2',
    }
    assert not any("out" in line for line in found if "aegis_hospital_online" in line)


def test_epsilon_is_that_of_the_mirror(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"privacy__mechanism": "update-gaussian", "aggregation__rounds": 2}
    summary = run(tmp_path / "runs", seconds(5, 5), Hospitals(), **settings)

    found = lines(tmp_path)

    ledger = summary.per_hospital["hospital-000"].ledger
    assert ledger
    assert f'aegis_epsilon_spent{{hospital="hospital-000"}} {ledger.spent!r}' in found
    assert f'aegis_epsilon_left{{hospital="hospital-000"}} {ledger.left!r}' in found


def test_epsilon_that_does_not_hold_is_no_number(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"privacy__mechanism": "update-gaussian", "aggregation__rounds": 2}
    run(tmp_path / "runs", seconds(5), Hospitals(), **settings)
    overview = lookout(tmp_path).look()
    assert overview.run
    (part,) = overview.run.participants
    assert part.budget
    spoiled = replace(part, budget=replace(part.budget, holds=False))

    told = {
        holds: render(measure(replace(overview, run=replace(overview.run, participants=(item,)))))
        for holds, item in ((True, part), (False, spoiled))
    }

    assert "aegis_epsilon_spent" in told[True]
    assert "aegis_epsilon" not in told[False]


def test_unknown_is_no_number(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"))
    write_run(tmp_path / "runs", "lungs", [event("start", 0), event("enrol", 1, hospital="a", examples=3)])

    found = lines(tmp_path, Answer(asked_at=NOW, failure="The SuperLink was not reached."))

    assert "aegis_superlink_up 0" in found
    assert names(found).isdisjoint(
        {
            "aegis_hospital_online",
            "aegis_hospital_last_update_seconds",
            "aegis_staleness_mean",
            "aegis_accuracy",
            "aegis_worst_accuracy",
            "aegis_epsilon_spent",
            "aegis_certificate_expiry_seconds",
        }
    )


def test_without_a_run_there_are_no_numbers_of_one(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium")

    assert names(lines(tmp_path)) == {"aegis_superlink_up", "aegis_hospitals", "aegis_findings"}


def test_certificates_are_counted_down(tmp_path: Path) -> None:
    folder = found(tmp_path / "consortium", days=90)
    ends = [item.ends for item in lookout(tmp_path).look().certificates]

    shown = lines(tmp_path)

    assert folder.authority.is_file()
    for which, end in zip(("server", "superlink", "ca"), ends, strict=True):
        assert end is not None
        assert f'aegis_certificate_expiry_seconds{{which="{which}"}} {int(end - NOW)}' in shown


@pytest.mark.parametrize("reason", [HOSTILE, 'a"} 1\nevil 1', "\\"])
def test_hostile_reason_stays_within_its_label(tmp_path: Path, reason: str) -> None:
    write_run(tmp_path / "runs", "lungs", [event("start", 0), event("refusal", 1, hospital=None, reason=reason)])

    shown = [line for line in lines(tmp_path) if line.startswith("aegis_updates_refused_total")]

    escaped = reason.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    assert shown == [f'aegis_updates_refused_total{{code="{escaped}"}} 1']
    assert not any(line.startswith("evil") for line in lines(tmp_path))
