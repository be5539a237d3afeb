"""A run under a mechanism: hospitals are paused at their caps, liars refused, and a resume follows the same books."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from flwr.app import Error, RecordDict

from federation.accounting.events import GaussianRelease, Unit
from federation.errors import RunFailedError, SiteErrorCode
from federation.models import build_model
from federation.parameters import digest, read_parameters
from federation.records.answers import HospitalScores, ModelUpdate, encode_hospital_scores
from server_app.engine import Engine
from server_app.intake import Intake
from server_app.mirror import LedgerMirror
from server_app.progress import Progress
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.summary import RunStatus, Summary
from tests.doubles import INFO, Hospitals, Spoiler, changed, configure
from tests.server_app.killing import Killed, kill_at

PRIVATE: dict[str, Any] = {"privacy__mechanism": "update-gaussian", "run__hospital_evaluation": False}


def run(folder: Path, hospitals: Hospitals, count: int, **settings: Any) -> Summary:
    return simulate(configure(folder, **{**PRIVATE, **settings}), hospitals.app(), [SiteTiming()] * count)


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "run" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def moves(folder: Path) -> float:
    """Return how far the run moved every parameter, which the doubles do by the same step everywhere."""
    start = read_parameters(build_model(configure(folder).model, INFO, seed=0))
    end = safetensors.torch.load_file(folder / "run" / "model.safetensors")
    steps = torch.cat([(end[name] - value).flatten() for name, value in start.items()])
    assert float(steps.max() - steps.min()) < 1e-5
    return float(steps.mean())


def test_hospital_at_its_cap_is_paused_and_the_others_go_on(tmp_path: Path) -> None:
    hospitals = Hospitals(caps={0: 0.6})

    summary = run(tmp_path, hospitals, 2, aggregation__rounds=5)

    assert (summary.status, summary.reason, summary.model_version) == (RunStatus.COMPLETED, "", 5)
    assert [version for name, version in hospitals.trained if name == "hospital-000"] == [0, 1, 2]
    assert [version for name, version in hospitals.trained if name == "hospital-001"] == [0, 1, 2, 3, 4]
    assert summary.refused == {}
    ledgers = [summary.per_hospital[name].ledger for name in ("hospital-000", "hospital-001")]
    assert [(ledger.paused, ledger.releases) for ledger in ledgers if ledger] == [(True, 3), (False, 5)]
    assert [event["hospital"] for event in events(tmp_path, "pause")] == ["hospital-000"]


def test_paused_hospital_is_not_sampled(tmp_path: Path) -> None:
    hospitals = Hospitals(caps={0: 0.2, 1: 0.2})

    run(tmp_path, hospitals, 4, aggregation__rounds=8, aggregation__sample_count=2)

    asked = [sum(name == f"hospital-00{index}" for name, _ in hospitals.trained) for index in range(4)]
    assert asked[:2] == [1, 1]
    assert sum(asked) == 8 * 2


def test_run_whose_hospitals_have_all_spent_their_budgets_ends_early_and_well(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(caps={0: 0.4, 1: 0.4}), 2, aggregation__rounds=5)

    assert (summary.status, summary.model_version, summary.updates_applied) == (RunStatus.COMPLETED, 2, 4)
    assert summary.reason == "Version 2 of 5 is the last: every hospital has spent its privacy budget."
    assert summary.refused == {}
    assert moves(tmp_path) == pytest.approx(sum(0.015 + version * 0.001 for version in range(2)), abs=1e-6)


def test_last_model_of_a_run_that_ended_early_is_durable(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(caps={0: 0.4, 1: 0.4}), 2, aggregation__rounds=5, run__checkpoint_every=5)

    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    assert newest.name == "version-00000002.safetensors"


def test_budget_of_the_run_ends_it_before_the_caps(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(), 2, aggregation__rounds=5, privacy__epsilon=0.6)

    assert (summary.status, summary.model_version) == (RunStatus.COMPLETED, 3)


def test_final_model_of_a_run_that_ended_early_is_evaluated(tmp_path: Path) -> None:
    summary = run(
        tmp_path, Hospitals(caps={0: 0.4, 1: 0.4}), 2, aggregation__rounds=5, run__hospital_evaluation=True,
        run__evaluate_every=0,
    )  # fmt: skip

    assert [point.version for point in summary.curve] == [2]
    assert summary.per_hospital["hospital-001"].accuracy == pytest.approx(0.51)


def exhausted(_: ModelUpdate) -> Error:
    return Error(int(SiteErrorCode.BUDGET_EXHAUSTED), "x")


def test_hospital_that_says_its_budget_is_spent_is_paused_and_not_refused(tmp_path: Path) -> None:
    hospitals = Hospitals(spoil={1: exhausted})

    summary = run(tmp_path, hospitals, 3, aggregation__rounds=3)

    assert (summary.status, summary.model_version, summary.refused) == (RunStatus.COMPLETED, 3, {})
    assert [version for name, version in hospitals.trained if name == "hospital-001"] == [0]
    assert summary.per_hospital["hospital-001"].refused == {}
    assert [event["hospital"] for event in events(tmp_path, "pause")] == ["hospital-001"]


def test_run_in_which_nobody_ever_had_budget_ends_without_counting_empty_rounds(tmp_path: Path) -> None:
    hospitals = Hospitals(spoil=dict.fromkeys(range(2), exhausted))

    summary = run(tmp_path, hospitals, 2, aggregation__rounds=3, aggregation__max_empty_rounds=1)

    assert (summary.status, summary.model_version, summary.updates_applied) == (RunStatus.COMPLETED, 0, 0)
    assert "spent its privacy budget" in summary.reason


def test_run_ends_when_too_few_hospitals_are_left_for_a_version(tmp_path: Path) -> None:
    hospitals = Hospitals(caps={0: 0.4})

    summary = run(tmp_path, hospitals, 2, aggregation__rounds=5, aggregation__min_updates=2)

    assert (summary.status, summary.model_version, summary.refused) == (RunStatus.COMPLETED, 2, {})
    assert summary.reason == "Version 2 of 5 is the last: only 1 can still pay for an update."
    assert [version for name, version in hospitals.trained if name == "hospital-001"] == [0, 1]


def test_federation_that_was_too_small_from_the_start_fails_and_blames_no_budget(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="fewer than 3 usable updates"):
        run(tmp_path, Hospitals(), 2, aggregation__rounds=2, aggregation__min_updates=3)


def test_enough_hospitals_that_are_left_go_on(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(caps={0: 0.4}), 3, aggregation__rounds=5, aggregation__min_updates=2)

    assert (summary.model_version, summary.updates_applied) == (5, 2 * 3 + 3 * 2)


def test_silent_hospital_is_a_failure_unless_its_budget_is_spent(tmp_path: Path) -> None:
    broken = Hospitals(spoil={1: lambda _: Error(int(SiteErrorCode.TRAINING_FAILED), "x")})

    with pytest.raises(RunFailedError, match="hospital-001"):
        run(tmp_path / "silent", broken, 2, aggregation__rounds=1)
    assert run(tmp_path / "spent", Hospitals(spoil={1: exhausted}), 2, aggregation__rounds=1).reason == ""


def declaring(**fields: Any) -> Spoiler:
    """Return a spoiler that replaces `fields` of an update's declaration."""

    def spoil(answer: ModelUpdate) -> ModelUpdate:
        assert answer.declaration is not None
        return replace(answer, declaration=replace(answer.declaration, **fields))

    return spoil


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (declaring(spent=0.01), "budget-contradiction"),
        (declaring(spent=9.0), "budget-contradiction"),
        (declaring(clip_norm=5.0), "privacy-mismatch"),
        (declaring(delta=0.1), "privacy-mismatch"),
        (declaring(mechanism="metrics"), "privacy-mismatch"),
        (declaring(mechanism="dp-sgd"), "malformed"),
        (declaring(unit=Unit.RECORD), "malformed"),
        (declaring(event=GaussianRelease(noise_multiplier=0.5), spent=26.8, cap=1e5), "budget-contradiction"),
        (changed(declaration=None), "privacy-mismatch"),
    ],
    ids=[
        "too little spent",
        "more than its cap",
        "other clip norm",
        "larger delta",
        "other mechanism",
        "impossible mechanism",
        "other unit",
        "more than the run asked for",
        "nothing",
    ],
)
def test_lying_hospital_is_refused_and_its_update_is_not_applied(tmp_path: Path, lie: Spoiler, reason: str) -> None:
    hospitals = Hospitals(spoil={1: lie})

    summary = run(tmp_path, hospitals, 2, aggregation__rounds=2, run__allow_silent_hospitals=True)

    assert summary.refused == {reason: 2}
    assert summary.per_hospital["hospital-001"].refused == {reason: 2}
    assert summary.updates_applied == 2
    assert moves(tmp_path) == pytest.approx(0.01 + 0.011, abs=1e-6)


def test_ledger_that_stands_still_is_a_contradiction(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(spoil={1: declaring(releases=1)}), 2, aggregation__rounds=2)

    assert summary.refused == {"budget-contradiction": 1}
    ledger = summary.per_hospital["hospital-001"].ledger
    assert ledger is not None
    assert (ledger.releases, ledger.contradictions) == (1, 1)


def test_noise_above_the_plan_is_welcome_and_less_is_not(tmp_path: Path) -> None:
    hospitals = Hospitals(noise={0: 30.0, 1: 24.22, 2: 20.0})

    summary = run(
        tmp_path, hospitals, 3, aggregation__rounds=1, privacy__noise_multiplier=24.22,
        run__allow_silent_hospitals=True,
    )  # fmt: skip

    assert summary.refused == {"privacy-mismatch": 1}
    assert [summary.per_hospital[f"hospital-00{index}"].updates for index in range(3)] == [1, 1, 0]


def test_update_that_is_not_used_is_spent_all_the_same(tmp_path: Path) -> None:
    def of_another_version(answer: ModelUpdate) -> ModelUpdate:
        return replace(answer, model_version=answer.model_version + 1)

    hospitals = Hospitals(caps={1: 0.4}, spoil={1: of_another_version})

    summary = run(tmp_path, hospitals, 2, aggregation__rounds=4)

    ledger = summary.per_hospital["hospital-001"].ledger
    assert ledger is not None
    assert (ledger.releases, ledger.paused) == (2, True)
    assert summary.refused == {"wrong-version": 2}
    assert summary.updates_applied == 4


def follow(monkeypatch: pytest.MonkeyPatch) -> list[Progress]:
    """Return a list into which every session puts its progress."""
    seen: list[Progress] = []
    original: Callable[..., None] = LedgerMirror.__init__

    def watch(mirror: LedgerMirror, configuration: Any, progress: Progress) -> None:
        original(mirror, configuration, progress)
        seen.append(progress)

    monkeypatch.setattr(LedgerMirror, "__init__", watch)
    return seen


def test_declarations_of_scores_are_booked_under_their_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = follow(monkeypatch)

    summary = run(tmp_path, Hospitals(), 2, aggregation__rounds=3, run__hospital_evaluation=True)

    counts = {
        name: {split: spending.history.releases for split, spending in splits.items()}
        for name, splits in seen[-1].spending.items()
    }
    booked = {"training": 3, "validation": 4, "test": 1}
    assert counts == {"hospital-000": booked, "hospital-001": booked}
    assert summary.refused == {}


def test_scores_without_a_declaration_are_refused_under_a_mechanism(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.doubles.encode_hospital_scores", without_declaration)

    summary = run(tmp_path, Hospitals(), 1, aggregation__rounds=1, run__hospital_evaluation=True)

    assert summary.refused == {"evaluation:privacy-mismatch": 3}
    assert summary.per_hospital["hospital-000"].accuracy is None
    assert [point.hospitals for point in summary.curve] == [{}, {}]


def without_declaration(answer: HospitalScores) -> RecordDict:
    return encode_hospital_scores(replace(answer, declaration=None))


POINTS = [
    (owner, name, call, after)
    for owner, name in [(Engine, "_apply"), (Intake, "settle"), (Engine, "_record_application")]
    for call in (2, 4)
    for after in (False, True)
]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(("owner", "name", "call", "after"), POINTS)
def test_mirror_of_a_killed_and_resumed_run_is_that_of_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool, every: int
) -> None:  # fmt: skip
    settings = {"aggregation__rounds": 5, "run__checkpoint_every": every}
    caps = {0: 0.6, 1: 2.0}
    unbroken = run(tmp_path / "unbroken", Hospitals(caps=caps), 2, **settings)
    hospitals = Hospitals(caps=caps)
    with monkeypatch.context() as patch:
        kill_at(patch, owner, name, call, after=after)
        with pytest.raises(Killed):
            run(tmp_path / "broken", hospitals, 2, **settings)

    resumed = run(tmp_path / "broken", hospitals, 2, run__resume=True, **settings)

    assert resumed.refused == {}
    assert [item.ledger for item in resumed.per_hospital.values()] == [
        item.ledger for item in unbroken.per_hospital.values()
    ]
    assert digest(safetensors.torch.load_file(tmp_path / "broken" / "run" / "model.safetensors")) == digest(
        safetensors.torch.load_file(tmp_path / "unbroken" / "run" / "model.safetensors")
    )
