"""How much of the model each hospital is: its part of all weight, of what size alone would give, and the factors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server_app.influence import mean_factors, size_share_of, staleness_of, weight_share_of
from server_app.progress import Contribution, Progress
from server_app.results import summarize
from server_app.summary import RunStatus, Staleness, Summary
from tests.doubles import configure

ONES = {"size": 1.0, "staleness": 1.0, "noise": 1.0}


def progress_of(**applied: list[tuple[int, float, dict[str, float]]]) -> Progress:
    """Return the progress of a run in which each hospital had updates of these stalenesses, weights and factors."""
    progress = Progress()
    for name, updates in applied.items():
        progress.of(name)
        for staleness, coefficient, factors in updates:
            progress.apply(name, staleness, coefficient, factors)
    return progress


def test_shares_of_weight_add_up_to_one() -> None:
    progress = progress_of(a=[(0, 0.5, ONES), (0, 0.25, ONES)], b=[(0, 0.25, ONES)], silent=[])

    assert [weight_share_of(progress, name) for name in ("a", "b", "silent", "absent")] == [0.75, 0.25, 0.0, 0.0]


@pytest.mark.parametrize("updates", [[], [(0, 0.0, ONES)]])
def test_there_is_no_share_of_no_weight(updates: list[tuple[int, float, dict[str, float]]]) -> None:
    assert weight_share_of(progress_of(a=updates), "a") is None


@pytest.mark.parametrize(("weighting", "expected"), [("examples", 0.9), ("sqrt", 0.75), ("uniform", 0.5)])
def test_size_share_follows_the_weighting(weighting: str, expected: float) -> None:
    progress = progress_of(a=[], b=[], never=[])
    progress.of("a").examples, progress.of("b").examples = 900, 100

    assert size_share_of(progress, "a", weighting) == pytest.approx(expected)
    assert size_share_of(progress, "never", weighting) is None
    assert size_share_of(progress, "unknown", weighting) is None


def test_staleness_is_mean_and_largest_of_the_hospital_alone() -> None:
    progress = progress_of(slow=[(3, 1.0, ONES), (9, 1.0, ONES)], fast=[(1, 1.0, ONES)], silent=[])

    assert staleness_of(progress.of("slow")) == Staleness(mean=6.0, max=9)
    assert staleness_of(progress.of("fast")) == Staleness(mean=1.0, max=1)
    assert staleness_of(Contribution()) is None


def test_factors_are_means_that_tell_old_from_noisy() -> None:
    old = [(4, 1.0, ONES | {"staleness": 0.5}), (8, 1.0, ONES | {"staleness": 0.25})]
    noisy = [(0, 1.0, ONES | {"noise": 0.125})]

    progress = progress_of(old=old, noisy=noisy)

    assert mean_factors(progress, "old") == {"staleness": 0.375, "noise": 1.0}
    assert mean_factors(progress, "noisy") == {"staleness": 1.0, "noise": 0.125}


def test_factors_that_were_always_one_and_those_of_silent_hospitals_are_left_out() -> None:
    progress = progress_of(a=[(0, 1.0, ONES)] * 3, silent=[])

    assert mean_factors(progress, "a") == {}
    assert mean_factors(progress_of(a=[(0, 1.0, {"noise": 0.5})], silent=[]), "silent") == {}


def test_summary_holds_the_influence_of_every_hospital_and_survives_its_own_json(tmp_path: Path) -> None:
    progress = progress_of(a=[(6, 0.25, ONES | {"staleness": 0.5})], b=[(0, 0.75, ONES)])
    progress.of("a").examples = progress.of("b").examples = 50
    progress.of("a").discarded = 2

    summary = summarize(
        configure(tmp_path), progress, engine="virtual", status=RunStatus.COMPLETED, reason="", final_hospitals={}
    )

    told = json.loads(summary.model_dump_json())["per_hospital"]["a"]
    assert (told["weight_share"], told["size_share"], told["discarded"]) == (0.25, 0.5, 2)
    assert (told["staleness"], told["factors"]) == ({"mean": 6.0, "max": 6}, {"staleness": 0.5})
    assert Summary.model_validate_json(summary.model_dump_json()) == summary
