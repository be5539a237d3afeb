"""Asynchronous rules on the virtual clock, against times, ages and models that can be written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from federation.errors import ConfigurationError
from server_app.simulation.timing import SiteTiming
from server_app.summary import RunStatus
from tests.doubles import Hospitals, changed
from tests.server_app.runs import ASYNCHRONOUS, applied, events, final_digest, moved, run, seconds, staleness

A, B, C = (f"hospital-{index:03d}" for index in range(3))
FEDASYNC, BUFFERED, TICKING = ASYNCHRONOUS.values()
NO_SCORES: dict[str, Any] = {"run__hospital_evaluation": False}
PRIVATE: dict[str, Any] = {**NO_SCORES, "privacy__mechanism": "update-gaussian"}


@pytest.mark.parametrize("times", [2, 3, 7])
def test_update_of_a_hospital_so_many_times_slower_is_so_many_versions_old(tmp_path: Path, times: int) -> None:
    timings = seconds(10, 10 * times + 5)

    summary = run(tmp_path, timings, aggregation__rule="fedasync", aggregation__rounds=times + 3, **NO_SCORES)

    ages = [[(A, 0)]] * times + [[(B, times)], [(A, 1)], [(A, 0)]]
    assert staleness(tmp_path) == ages
    assert [event["elapsed_s"] for event in events(tmp_path, "apply")] == [
        *(10.0 * (number + 1) for number in range(times)),
        10.0 * times + 5,
        10.0 * times + 10,
        10.0 * times + 20,
    ]
    assert summary.staleness is not None
    assert (summary.staleness.mean, summary.staleness.max) == ((times + 1) / (times + 3), times)


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({}, lambda s: (1 + s) ** -0.5),
        ({"aggregation__staleness": "constant"}, lambda s: 1.0),
        ({"aggregation__staleness": "exponential", "aggregation__staleness_alpha": 0.5}, lambda s: 0.5**s),
        (
            {"aggregation__staleness": "hinge", "aggregation__staleness_grace": 1, "aggregation__staleness_slope": 3.0},
            lambda s: 1 / (3 * max(0, s - 1) + 1),
        ),
    ],
    ids=["polynomial", "constant", "exponential", "hinge"],
)
def test_old_update_moves_the_model_less_as_the_staleness_factor_says(
    tmp_path: Path, settings: dict[str, Any], factor: Any
) -> None:
    timings = seconds(10, 35)
    settings = {
        "aggregation__rule": "fedasync",
        "aggregation__rounds": 6,
        "aggregation__server_learning_rate": 0.5,
        **NO_SCORES,
        **settings,
    }

    run(tmp_path, timings, Hospitals(examples={0: 10, 1: 30}), **settings)

    # (hospital, base version, age): hospital 1 arrives after three versions of hospital 0.
    order = [(0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 0, 3), (0, 3, 1), (0, 5, 0)]
    size = {0: 10 / 20, 1: 30 / 20}
    steps = [size[index] * factor(age) * Hospitals().step(index, base) for index, base, age in order]
    assert moved(tmp_path) == pytest.approx(0.5 * sum(steps), abs=1e-6)


def test_buffer_takes_whoever_comes_and_the_first_after_it_begin_the_next(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "buffered",
        "aggregation__buffer_size": 2,
        "aggregation__rounds": 7,
    }

    run(tmp_path, seconds(10, 10, 45), **settings, **NO_SCORES)

    assert staleness(tmp_path) == [[(A, 0), (B, 0)]] * 4 + [[(C, 4), (A, 0)], [(B, 1), (A, 0)], [(B, 1), (A, 0)]]
    assert [event["elapsed_s"] for event in events(tmp_path, "apply")] == [10, 20, 30, 40, 50, 60, 70]


def test_buffer_that_waits_for_all_of_equally_fast_hospitals_is_fedavg(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"aggregation__rounds": 4, "aggregation__server_optimizer": "momentum"}

    run(tmp_path / "rounds", seconds(10, 10, 10), **settings)
    run(tmp_path / "buffer", seconds(10, 10, 10), aggregation__rule="buffered", aggregation__buffer_size=3, **settings)

    assert final_digest(tmp_path / "buffer") == final_digest(tmp_path / "rounds")


def test_versions_are_made_at_ticks_of_what_has_arrived(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "semi-synchronous",
        "aggregation__period_s": 25.0,
        "aggregation__rounds": 3,
    }

    run(tmp_path, seconds(10, 12, 61), **settings, **NO_SCORES)

    assert [event["elapsed_s"] for event in events(tmp_path, "apply")] == [25.0, 50.0, 75.0]
    assert staleness(tmp_path) == [[(A, 0), (B, 0)], [(A, 0), (B, 0)], [(A, 0), (C, 2), (B, 0)]]


def test_tick_without_an_update_makes_no_version(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "semi-synchronous",
        "aggregation__period_s": 25.0,
        "aggregation__rounds": 2,
    }

    run(tmp_path, seconds(60, 130), **settings, **NO_SCORES)

    assert [event["elapsed_s"] for event in events(tmp_path, "apply")] == [75.0, 150.0]
    assert staleness(tmp_path) == [[(A, 0)], [(B, 1), (A, 0)]]


def test_tick_with_too_few_updates_leaves_them_to_the_next(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "semi-synchronous",
        "aggregation__period_s": 25.0,
        "aggregation__rounds": 2,
        "aggregation__min_updates": 2,
    }

    summary = run(tmp_path, seconds(10, 40, 500), **settings, **NO_SCORES)

    assert [event["elapsed_s"] for event in events(tmp_path, "apply")] == [50.0, 100.0]
    assert (summary.refused, summary.updates_applied) == ({}, 4)


def test_version_is_made_before_the_tick_when_nobody_is_left_to_wait_for(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "semi-synchronous",
        "aggregation__period_s": 1000.0,
        "aggregation__rounds": 3,
    }

    run(tmp_path, seconds(10, 20), **settings, **NO_SCORES)

    assert [event["elapsed_s"] for event in events(tmp_path, "apply")] == [20.0, 40.0, 60.0]


def test_fast_hospital_waits_when_it_is_too_far_ahead(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"aggregation__rule": "fedasync", "aggregation__rounds": 6, "aggregation__max_lead": 2}

    run(tmp_path, seconds(10, 100, 110), **settings, **NO_SCORES)

    asked = [event["elapsed_s"] for event in events(tmp_path, "dispatch") if event["hospital"] == A]
    # Two ahead of the median of (2, 0, 0), and one ahead of that of (2, 1, 0).
    assert asked[:3] == [0.0, 10.0, 100.0]


@pytest.mark.parametrize("rule", ["fedasync", "buffered", "semi-synchronous"])
def test_no_more_hospitals_work_at_a_time_than_may(tmp_path: Path, rule: str) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": rule,
        "aggregation__rounds": 9,
        "aggregation__sample_count": 2,
        "aggregation__buffer_size": 2,
        "aggregation__period_s": 25.0,
    }

    summary = run(tmp_path, seconds(10, 12, 14, 31), **settings, **NO_SCORES)

    at_work, most = 0, 0
    for event in events(tmp_path, "dispatch", "update"):
        at_work += 1 if event["event"] == "dispatch" else -1
        most = max(most, at_work)
    assert most == 2
    assert summary.model_version == 9
    assert all(item.updates for item in summary.per_hospital.values())


def test_buffer_larger_than_the_federation_is_refused_by_the_name_of_its_key(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "buffered",
        "aggregation__buffer_size": 3,
        "aggregation__rounds": 1,
    }

    with pytest.raises(ConfigurationError, match=r"aggregation\.buffer-size=3 <= the 2 hospitals"):
        run(tmp_path, seconds(10, 10), **settings)

    assert not events(tmp_path, "dispatch")


def test_result_that_is_not_wanted_costs_nothing_under_two_phase_release_only(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "fedasync",
        "aggregation__rounds": 8,
        "aggregation__max_staleness": 3,
    }
    spenders = {release: Hospitals() for release in ("immediate", "two-phase")}

    summaries = {
        release: run(
            tmp_path / release, seconds(10, 55), hospitals, aggregation__release=release, **settings, **PRIVATE
        )
        for release, hospitals in spenders.items()
    }

    assert {name: summary.refused for name, summary in summaries.items()} == {
        "immediate": {"too-stale": 1},
        "two-phase": {"discarded": 1},
    }
    assert list(spenders["immediate"].books[B, "training"]) == [0]
    assert (B, "training") not in spenders["two-phase"].books
    assert spenders["two-phase"].discarded == [(B, 0)]
    assert not spenders["two-phase"].pending
    assert summaries["two-phase"].per_hospital[B].ledger is None


def test_two_phase_release_leads_to_the_same_model_and_costs_the_same_where_nothing_is_discarded(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "buffered",
        "aggregation__buffer_size": 2,
        "aggregation__rounds": 6,
        **PRIVATE,
    }
    spenders = {release: Hospitals() for release in ("immediate", "two-phase")}
    for release, hospitals in spenders.items():
        run(tmp_path / release, seconds(10, 13, 47), hospitals, aggregation__release=release, **settings)

    assert applied(tmp_path / "immediate") == applied(tmp_path / "two-phase")
    assert final_digest(tmp_path / "immediate") == final_digest(tmp_path / "two-phase")
    used = {(row["hospital"], "training") for rows in applied(tmp_path / "two-phase").values() for row in rows}
    assert {key: len(book) for key, book in spenders["two-phase"].books.items()} == {
        key: sum(row["hospital"] == key[0] for rows in applied(tmp_path / "two-phase").values() for row in rows)
        for key in used
    }


@pytest.mark.parametrize(("release", "reason"), [("immediate", "late-reply"), ("two-phase", "discarded")])
def test_update_that_comes_while_the_last_version_is_scored_is_counted_and_not_asked_for(
    tmp_path: Path, release: str, reason: str
) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "fedasync",
        "aggregation__rounds": 3,
        "aggregation__release": release,
    }
    hospitals = Hospitals()
    timings = [SiteTiming(train_s=10, evaluate_s=50), SiteTiming(train_s=32)]

    summary = run(tmp_path, timings, hospitals, run__evaluate_every=0, privacy__mechanism="update-gaussian", **settings)

    assert summary.refused == {reason: 1}
    assert len(events(tmp_path, "update")) == summary.updates_applied == 3
    assert ((B, "training") in hospitals.books) is (release == "immediate")
    assert summary.per_hospital[B].accuracy is not None


def test_updates_that_wait_when_the_last_budget_is_spent_still_make_a_version(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "buffered",
        "aggregation__buffer_size": 4,
        "aggregation__rounds": 5,
        **PRIVATE,
    }
    hospitals = Hospitals(caps=dict.fromkeys(range(6), 0.2))

    summary = run(tmp_path, seconds(10, 11, 12, 13, 14, 15), hospitals, **settings)

    assert (summary.status, summary.model_version, summary.updates_applied) == (RunStatus.COMPLETED, 2, 6)
    assert [len(rows) for rows in applied(tmp_path).values()] == [4, 2]
    assert summary.reason == "Version 2 of 5 is the last: every hospital has spent its privacy budget."


def test_updates_that_wait_when_the_last_budget_is_spent_wait_for_no_score(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "buffered",
        "aggregation__buffer_size": 2,
        "aggregation__rounds": 5,
        "privacy__mechanism": "update-gaussian",
    }
    timings = [timing.__class__(train_s=timing.train_s, evaluate_s=500) for timing in seconds(10, 11, 12)]

    summary = run(tmp_path, timings, Hospitals(caps=dict.fromkeys(range(3), 0.2)), **settings)

    assert (summary.model_version, summary.updates_applied) == (2, 3)


def test_hospital_counts_by_the_images_behind_its_updates_once_it_has_sent_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "fedasync",
        "aggregation__rounds": 5,
        "aggregation__staleness": "constant",
    }
    hospitals = Hospitals(examples={0: 10, 1: 1000}, spoil={1: changed(examples=10)})

    run(tmp_path, seconds(10, 25), hospitals, **settings, **NO_SCORES)

    rows = [(row["hospital"], row["weight"]) for rows in applied(tmp_path).values() for row in rows]
    # Of 1000 images that B says it has, 40 count until it sends an update.
    assert rows == [(A, 0.4), (A, 0.4), (B, 1.0), (A, 1.0), (A, 1.0)]


def test_every_factor_of_an_update_is_logged_apart(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "fedasync",
        "aggregation__rounds": 3,
        "aggregation__noise_weighting": True,
    }

    run(tmp_path, seconds(10, 15), Hospitals(noise={0: 24.22, 1: 48.44}), **settings, **PRIVATE)

    rows = [row for rows in applied(tmp_path).values() for row in rows]
    assert [row["hospital"] for row in rows] == [A, B, A]
    assert [row["factors"]["staleness"] for row in rows] == pytest.approx([1, 2**-0.5, 2**-0.5])
    assert [row["factors"]["noise"] for row in rows] == pytest.approx([1, 0.25, 1])
    assert [row["weight"] for row in rows] == pytest.approx([1, 0.25 * 2**-0.5, 2**-0.5])
