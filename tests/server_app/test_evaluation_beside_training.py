"""Under asynchronous rules hospitals score a version when they are free, while the others train on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server_app.simulation.timing import SiteTiming
from tests.server_app.runs import ASYNCHRONOUS, dropping, events, run, seconds

A, B, C = (f"hospital-{index:03d}" for index in range(3))
FEDASYNC: dict[str, Any] = ASYNCHRONOUS["fedasync"]


def asked(folder: Path, task: str) -> list[tuple[str, int, float]]:
    return [
        (event["hospital"], event["version"], event["elapsed_s"])
        for event in events(folder, "dispatch")
        if event["task"] == task
    ]


def test_point_of_the_curve_stands_at_the_time_of_its_version(tmp_path: Path) -> None:
    summary = run(tmp_path, seconds(10, 100), run__evaluate_every=2, aggregation__rounds=7, **FEDASYNC)

    made = {event["version"]: event["elapsed_s"] for event in events(tmp_path, "apply")}
    assert [point.version for point in summary.curve] == [0, 2, 4, 6, 7]
    assert [point.elapsed_s for point in summary.curve] == [0.0, *(made[version] for version in (2, 4, 6, 7))]


def test_hospital_is_asked_for_scores_when_it_is_free_and_trains_afterwards(tmp_path: Path) -> None:
    summary = run(tmp_path, seconds(10, 22), run__evaluate_every=2, aggregation__rounds=6, **FEDASYNC)

    # Both score for the first second. A makes versions at 11, 21, 32 and 43, and B at 23 and 46.
    assert asked(tmp_path, "evaluate")[:6] == [
        (A, 0, 0.0), (B, 0, 0.0), (A, 2, 21.0), (B, 2, 23.0), (A, 4, 32.0), (B, 6, 46.0),
    ]  # fmt: skip
    assert [row for row in asked(tmp_path, "train") if row[0] == B] == [(B, 0, 1.0), (B, 3, 24.0)]
    assert [sorted(point.hospitals) for point in summary.curve] == [[A, B], [A, B], [A], [A, B]]


def test_training_goes_on_while_others_score(tmp_path: Path) -> None:
    timings = [SiteTiming(train_s=10, evaluate_s=1), SiteTiming(train_s=10, evaluate_s=500)]

    summary = run(tmp_path, timings, run__evaluate_every=3, aggregation__rounds=9, run__wait_s=600.0, **FEDASYNC)

    made = {event["version"]: event["elapsed_s"] for event in events(tmp_path, "apply")}
    assert made[9] < 120
    assert [sorted(point.hospitals) for point in summary.curve] == [[A, B], [A], [A], [A, B]]


def test_next_evaluation_closes_the_one_before_and_what_comes_late_of_it_joins_the_curve_at_its_version(
    tmp_path: Path,
) -> None:
    timings = [SiteTiming(train_s=10, evaluate_s=1), SiteTiming(train_s=10, evaluate_s=55)]

    summary = run(tmp_path, timings, run__evaluate_every=2, aggregation__rounds=8, **FEDASYNC)

    closed = [(event["version"], event["elapsed_s"]) for event in events(tmp_path, "evaluate")]
    made = {event["version"]: event["elapsed_s"] for event in events(tmp_path, "apply")}
    assert closed[:2] == [(0, made[2]), (2, made[4])]
    (first, *_) = events(tmp_path, "evaluate")
    assert sorted(first["hospitals"]) == [A]
    late = [(event["hospital"], event["version"], event["split"]) for event in events(tmp_path, "late-scores")]
    assert late[0] == (B, 0, "validation")
    assert [sorted(point.hospitals) for point in summary.curve if (B, point.version, "validation") in late] == [
        [A, B] for _ in late
    ]
    assert summary.refused == {}


def test_evaluation_is_over_when_everybody_has_answered(tmp_path: Path) -> None:
    summary = run(tmp_path, seconds(10, 15), run__evaluate_every=5, aggregation__rounds=12, **FEDASYNC)

    assert [sorted(point.hospitals) for point in summary.curve][:2] == [[A, B], [A, B]]
    assert events(tmp_path, "evaluate")[0]["elapsed_s"] == 1.0


def test_hospital_that_never_answers_leaves_its_place_in_the_curve_empty(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"run__evaluate_every": 2, "aggregation__rounds": 6, "run__wait_s": 30.0, **FEDASYNC}

    summary = run(tmp_path, seconds(10, 15, 17), tamper=dropping("evaluate", 3), **settings)

    assert [point.version for point in summary.curve] == [0, 2, 4, 6]
    assert all(B not in point.hospitals for point in summary.curve)
    assert summary.per_hospital[B].accuracy is None


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_final_model_is_tested_by_the_slow_hospital_too(tmp_path: Path, rule: str) -> None:
    timings = [SiteTiming(train_s=10, evaluate_s=1), SiteTiming(train_s=10), SiteTiming(train_s=110, evaluate_s=30)]
    settings: dict[str, Any] = {"aggregation__rounds": 45, "run__evaluate_every": 0, "run__wait_s": 10.0}

    summary = run(tmp_path, timings, **settings, **ASYNCHRONOUS[rule])

    assert [item.accuracy for item in summary.per_hospital.values()] == pytest.approx([0.5, 0.51, 0.52])
    assert sorted(summary.curve[-1].hospitals) == [A, B, C]


def test_hospital_that_trains_for_long_when_the_last_version_is_made_still_scores_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"aggregation__rounds": 12, "run__evaluate_every": 4, "run__wait_s": 5.0, **FEDASYNC}

    summary = run(tmp_path, [*seconds(10, 40), SiteTiming(train_s=150, evaluate_s=8)], **settings)

    made = events(tmp_path, "apply")[-1]["elapsed_s"]
    (free, *_) = [moment for name, version, moment in asked(tmp_path, "evaluate") if (name, version) == (C, 12)]
    assert free < made + 60 < free + 8
    assert sorted(summary.curve[-1].hospitals) == [A, B, C]
    assert summary.curve[-1].elapsed_s == made


def test_wait_for_the_slow_ends_after_one_and_a_half_of_the_longest_task(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"aggregation__rounds": 12, "run__evaluate_every": 0, "run__wait_s": 5.0, **FEDASYNC}

    summary = run(tmp_path, seconds(10, 40, 10_000), **settings)

    made = events(tmp_path, "apply")[-1]["elapsed_s"]
    assert summary.virtual_s is not None
    assert made + 60.0 + 1.0 <= summary.virtual_s < made + 60.0 + 1.0 + 5.0
    assert summary.per_hospital[C].accuracy is None
