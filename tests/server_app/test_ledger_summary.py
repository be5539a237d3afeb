"""From the mirror to the summary: three accounts of what was declared, and what accuracy it bought."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant

from federation.accounting.events import GaussianRelease
from federation.metrics import Scores
from server_app.ledger_summary import gain_of, summarize_ledger
from server_app.progress import Progress
from server_app.results import summarize
from server_app.spending import Spending
from server_app.summary import CurvePoint, HospitalSummary, RunStatus, ScoresSummary
from tests.doubles import configure

FIFTH = GaussianRelease(noise_multiplier=24.22)


def scores(accuracy: float) -> Scores:
    return Scores(accuracy=accuracy, auroc=None, loss=None, examples=100)


def progress_of(*, releases: int = 4, **changes: Any) -> Progress:
    """Return the progress of a run in which hospital "a" declared `releases` updates."""
    spending = Spending(
        mechanism="update-gaussian", relation="zero-out", unit="update", delta=1e-5, account="linear", spent=1.0,
        cap=8.0, releases=9, refused=0,
    )  # fmt: skip
    for _ in range(releases):
        spending.book(FIFTH)
    progress = Progress()
    progress.of("a")
    progress.spending["a"] = {"training": spending.model_copy(update=changes)}
    return progress


def point(version: int, central: float | None = None, **hospitals: float) -> CurvePoint:
    return CurvePoint(
        version=version,
        elapsed_s=0.0,
        central=None if central is None else scores(central),
        hospitals={name: scores(accuracy) for name, accuracy in hospitals.items()},
    )


def hospital_of(
    progress: Progress, tmp_path: Path, mechanism: str = "update-gaussian", **final: float
) -> HospitalSummary:
    summary = summarize(
        configure(tmp_path, privacy__mechanism=mechanism),
        progress,
        engine="virtual",
        status=RunStatus.COMPLETED,
        reason="",
        final_hospitals={name: scores(accuracy) for name, accuracy in final.items()},
    )
    return summary.per_hospital["a"]


def test_events_of_this_run_are_counted_by_all_three_accounts() -> None:
    found = summarize_ledger(progress_of(refused=2), "a")

    assert found is not None
    reference = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(GaussianDpEvent(24.22), 4)
    assert found.linear == pytest.approx(0.8, abs=1e-3)
    assert found.pld == pytest.approx(reference.get_epsilon(1e-5), rel=1e-2)
    assert found.pld <= found.rdp <= found.linear
    assert (found.releases, found.spent, found.cap, found.left, found.contradictions) == (4, 1.0, 8.0, 7.0, 2)
    assert (found.mechanism, found.relation, found.unit) == ("update-gaussian", "zero-out", "update")


def test_nothing_is_left_below_zero() -> None:
    found = summarize_ledger(progress_of(spent=9.0), "a")

    assert found is not None
    assert found.left == 0.0


@pytest.mark.parametrize("changes", [{"delta": None}, {"spent": None}, {"cap": None}])
def test_hospital_that_declared_nothing_has_no_ledger(changes: dict[str, Any]) -> None:
    assert summarize_ledger(progress_of(**changes), "a") is None
    assert summarize_ledger(progress_of(), "b") is None


def test_gain_is_measured_on_the_same_images_at_both_ends() -> None:
    progress = progress_of()
    progress.curve = [point(0, 0.5, a=0.4, b=0.3), point(1, 0.6, a=0.5, c=0.1), point(3, 0.9, a=0.6, c=0.2)]

    assert gain_of(progress, "a") == pytest.approx(0.2)
    assert gain_of(progress, "b") == pytest.approx(0.4)
    assert gain_of(progress, "c") == pytest.approx(0.4)


@pytest.mark.parametrize(
    "curve",
    [
        [], [point(0, 0.5, a=0.5)], [point(2, 0.5), point(3, 0.9)], [point(0), point(3, 0.9)],
        [point(0, 0.5), point(3)], [point(0, a=0.5), point(3, b=0.5)],
    ],
)  # fmt: skip
def test_gain_is_unknown_without_accuracy_before_and_after(curve: list[CurvePoint]) -> None:
    progress = progress_of()
    progress.curve = curve

    assert gain_of(progress, "a") is None


def test_benefit_is_accuracy_gained_on_validation_images_per_epsilon_spent(tmp_path: Path) -> None:
    progress = progress_of(spent=2.0)
    progress.curve = [point(0, a=0.4), point(1, a=0.5)]

    found = hospital_of(progress, tmp_path, a=0.8)

    assert (found.epsilon_spent, found.delta) == (2.0, 1e-5)
    assert found.accuracy == 0.8
    assert found.benefit_per_epsilon == pytest.approx(0.05)


def scored(**changes: Any) -> Spending:
    """Return what was booked of the scores on one split: two answers."""
    spending = Spending(
        mechanism="metrics", relation="add-remove", unit="record", delta=1e-6, account="pld", spent=0.4, cap=8.0,
        releases=5,
    )  # fmt: skip
    for _ in range(2):
        spending.book(FIFTH)
    return spending.model_copy(update=changes)


def test_scores_are_summed_up_for_each_split(tmp_path: Path) -> None:
    progress = progress_of()
    progress.spending["a"] |= {"validation": scored(), "test": scored(spent=0.7, uncovered=1)}

    assert hospital_of(progress, tmp_path).scores == {
        "validation": ScoresSummary(releases=2, epsilon=0.4, delta=1e-6, uncovered=0),
        "test": ScoresSummary(releases=2, epsilon=0.7, delta=1e-6, uncovered=1),
    }


@pytest.mark.parametrize("mechanism", ["update-gaussian", "none"])
def test_scores_that_nothing_was_declared_of_are_not_summed_up(tmp_path: Path, mechanism: str) -> None:
    progress = progress_of()
    progress.spending["a"]["test"] = Spending(refused=2, uncovered=1)
    if mechanism == "none":
        progress.spending["a"]["validation"] = scored()

    assert hospital_of(progress, tmp_path, mechanism).scores == {}


def test_model_that_got_worse_has_a_negative_benefit(tmp_path: Path) -> None:
    progress = progress_of(spent=2.0)
    progress.curve = [point(0, 0.5), point(1, 0.4)]

    assert hospital_of(progress, tmp_path).benefit_per_epsilon == pytest.approx(-0.05)


@pytest.mark.parametrize(
    ("mechanism", "changes"), [("update-gaussian", {"uncovered": 1}), ("update-gaussian", {"refused": 1}), ("none", {})]
)
def test_no_epsilon_is_told_where_none_holds(tmp_path: Path, mechanism: str, changes: dict[str, int]) -> None:
    progress = progress_of(**changes)
    progress.curve = [point(0, 0.5), point(1, 0.9)]

    found = hospital_of(progress, tmp_path, mechanism)

    assert (found.epsilon_spent, found.delta, found.benefit_per_epsilon) == (None, None, None)
    assert (found.ledger is None) == (mechanism == "none")
