"""The server's mirror believes nothing: it recomputes, refuses contradictions, and pauses who has nothing left."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federation.accounting.accounts import account_of
from federation.accounting.events import Event, GaussianRelease, History, Relation, SampledGaussianRelease, Unit
from federation.accounting.gaussian import analytic_noise_multiplier
from federation.errors import RefusalCode, RefusalError
from federation.records.declarations import Declaration
from server_app.mirror import LedgerMirror
from server_app.progress import Progress
from tests.doubles import configure

EVENT = GaussianRelease(noise_multiplier=24.22)
DELTA = 1e-5


def mirror_of(folder: Path, **privacy: Any) -> tuple[LedgerMirror, Progress]:
    settings = {"privacy__mechanism": "update-gaussian", "privacy__delta": DELTA}
    settings |= {f"privacy__{key}": value for key, value in privacy.items() if "__" not in key}
    settings |= {key: value for key, value in privacy.items() if "__" in key}
    progress = Progress()
    return LedgerMirror(configure(folder, **settings), progress), progress


def declare(events: list[Event], **changes: Any) -> Declaration:
    """Return the honest declaration of the last of `events` at a hospital whose cap is 8."""
    spent = account_of("linear").epsilon(History.of(events), DELTA)
    declaration = Declaration(
        mechanism="update-gaussian",
        relation=Relation.ZERO_OUT,
        unit=Unit.UPDATE,
        clip_norm=1.0,
        event=events[-1],
        delta=DELTA,
        account="linear",
        spent=spent,
        cap=8.0,
        releases=len(events),
    )
    return replace(declaration, **changes)


def test_honest_declarations_are_followed(tmp_path: Path) -> None:
    mirror, progress = mirror_of(tmp_path)

    for number in (1, 2, 3):
        mirror.book("a", declare([EVENT] * number), examples=10)

    spending = progress.spending["a"]["training"]
    assert spending.history == History.of([EVENT] * 3)
    assert spending.spent == pytest.approx(0.6, abs=1e-3)
    assert (spending.cap, spending.releases) == (8.0, 3)
    assert not mirror.is_paused("a")
    assert Progress.model_validate_json(progress.model_dump_json()) == progress


def test_hospital_is_paused_when_the_next_release_would_exceed_its_cap(tmp_path: Path) -> None:
    mirror, _ = mirror_of(tmp_path)

    for number in range(1, 41):
        assert not mirror.is_paused("a")
        mirror.book("a", declare([EVENT] * number), examples=10)

    assert mirror.is_paused("a")
    assert mirror.unpaused(["b", "a", "c"]) == ["b", "c"]


def test_budget_of_the_run_pauses_before_the_cap(tmp_path: Path) -> None:
    mirror, _ = mirror_of(tmp_path, epsilon=0.5)

    mirror.book("a", declare([EVENT]), examples=10)
    assert not mirror.is_paused("a")
    mirror.book("a", declare([EVENT] * 2), examples=10)

    assert mirror.is_paused("a")


@pytest.mark.parametrize(
    "changes",
    [
        {"spent": 0.1},
        {"spent": 8.5},
        {"releases": 1},
        {"releases": 2, "spent": 0.39},
    ],
    ids=["less spent than the events cost", "more spent than the cap", "releases do not grow", "spent too little"],
)
def test_claim_that_contradicts_the_events_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    mirror, progress = mirror_of(tmp_path)
    mirror.book("a", declare([EVENT]), examples=10)
    before = progress.spending["a"]["training"].model_copy(deep=True)

    with pytest.raises(RefusalError) as error:
        mirror.book("a", declare([EVENT] * 2, **changes), examples=10)

    assert error.value.code is RefusalCode.BUDGET_CONTRADICTION
    assert progress.spending["a"]["training"] == before.model_copy(update={"refused": 1})


def test_events_of_this_run_that_cost_more_than_it_asked_for_are_refused(tmp_path: Path) -> None:
    mirror, progress = mirror_of(tmp_path, epsilon=0.5)
    mirror.book("a", declare([EVENT], cap=1e5), examples=10)
    mirror.book("a", declare([EVENT] * 2, cap=1e5), examples=10)

    with pytest.raises(RefusalError, match=r"at most epsilon 0\.5") as error:
        mirror.book("a", declare([EVENT] * 3, cap=1e5), examples=10)

    assert error.value.code is RefusalCode.BUDGET_CONTRADICTION
    assert progress.spending["a"]["training"].history.releases == 2


@pytest.mark.parametrize("split", ["training", "validation"])
def test_single_release_above_the_run_is_refused_and_one_just_below_it_is_not(tmp_path: Path, split: str) -> None:
    large = GaussianRelease(noise_multiplier=analytic_noise_multiplier(1.998, DELTA))
    scores = {"mechanism": "metrics", "unit": Unit.RECORD, "relation": Relation.ADD_REMOVE}
    honest = declare([large], account="pld", spent=26.8, cap=1e5, **(scores if split == "validation" else {}))

    mirror_of(tmp_path, epsilon=2.0)[0].book("a", honest, examples=10, split=split)
    with pytest.raises(RefusalError, match=r"at most epsilon 1\.99"):
        mirror_of(tmp_path, epsilon=1.99)[0].book("a", honest, examples=10, split=split)


def test_total_of_earlier_runs_may_exceed_what_this_run_asked_for(tmp_path: Path) -> None:
    mirror, progress = mirror_of(tmp_path, epsilon=0.5)

    mirror.book("a", declare([EVENT], spent=20.0, cap=30.0, releases=101), examples=10)

    assert progress.spending["a"]["training"].spent == 20.0
    assert not mirror.is_paused("a")


@pytest.mark.parametrize(
    ("account", "spent", "paused"),
    [
        ("linear", 7.75, False),
        ("linear", 7.85, True),
        ("rdp", 7.85, False),
        ("rdp", 7.9995, True),
        ("pld", 7.99, False),
        ("pld", 8.0, True),
    ],
)
def test_what_earlier_runs_spent_counts_against_the_cap(
    tmp_path: Path, account: str, spent: float, paused: bool
) -> None:
    mirror, _ = mirror_of(tmp_path)

    mirror.book("a", declare([EVENT], account=account, spent=spent, releases=40), examples=10)

    assert mirror.is_paused("a") is paused


def test_total_that_falls_below_an_earlier_one_is_refused(tmp_path: Path) -> None:
    mirror, _ = mirror_of(tmp_path)
    mirror.book("a", declare([EVENT], spent=5.0, releases=30), examples=10)

    with pytest.raises(RefusalError, match="as before"):
        mirror.book("a", declare([EVENT] * 2, spent=1.0, releases=31), examples=10)
    with pytest.raises(RefusalError, match="releases known"):
        mirror.book("a", declare([EVENT] * 2, spent=5.2, releases=30), examples=10)


def test_ledger_that_forgets_uncovered_releases_is_refused(tmp_path: Path) -> None:
    mirror, _ = mirror_of(tmp_path)
    mirror.book("a", declare([EVENT], uncovered=2), examples=10)

    with pytest.raises(RefusalError) as error:
        mirror.book("a", declare([EVENT] * 2), examples=10)

    assert error.value.code is RefusalCode.BUDGET_CONTRADICTION


@pytest.mark.parametrize(
    ("privacy", "changes"),
    [
        ({}, None),
        ({}, {"mechanism": "none"}),
        ({}, {"mechanism": "dp-sgd"}),
        ({}, {"delta": 1e-4}),
        ({}, {"clip_norm": 2.0}),
        ({"relation": "replace-one"}, {}),
        ({"noise_multiplier": 30.0}, {}),
        ({}, {"event": SampledGaussianRelease(noise_multiplier=50.0, sampling_probability=0.1, steps=1)}),
        ({}, {"relation": Relation.REPLACE_ONE}),
        ({}, {"unit": Unit.RECORD}),
        ({"release_epsilon": 0.125}, {}),
        ({"mechanism": "none"}, {}),
        ({"mechanism": "none"}, {"mechanism": "none"}),
    ],
    ids=["nothing declared", "none", "other mechanism", "larger delta", "other clip norm", "other relation",
         "less noise than asked", "event of another mechanism", "relation not asked for",
         "other unit", "larger epsilon per release than asked", "not asked for", "nothing, declared"],
)  # fmt: skip
def test_declaration_weaker_than_the_plan_is_refused(
    tmp_path: Path, privacy: dict[str, Any], changes: dict[str, Any] | None
) -> None:
    mirror, progress = mirror_of(tmp_path, **privacy)
    declaration = None if changes is None else declare([EVENT], **changes)

    with pytest.raises(RefusalError) as error:
        mirror.book("a", declaration, examples=10)

    assert error.value.code is RefusalCode.PRIVACY_MISMATCH
    assert progress.spending["a"]["training"].history == History()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sampling_probability": 0.05}, "sampling probability 0.1"),
        ({"sampling_probability": 0.2}, "sampling probability 0.1"),
        ({"steps": 19}, "steps 20"),
        ({"steps": 21}, "steps 20"),
        ({"steps": 2}, "steps 20"),
        ({"noise_multiplier": 0.9}, "noise multiplier"),
    ],
)
def test_dp_sgd_that_did_not_sample_as_planned_is_refused(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    settings = {"mechanism": "dp-sgd", "noise_multiplier": 1.0, "training__batch_size": 10, "training__local_epochs": 2}
    mirror, _ = mirror_of(tmp_path, **settings)
    honest = SampledGaussianRelease(noise_multiplier=1.0, sampling_probability=0.1, steps=20)

    with pytest.raises(RefusalError, match=match) as error:
        mirror.book("a", sampled(replace(honest, **changes)), examples=100)
    mirror.book("a", sampled(honest), examples=100)

    assert error.value.code is RefusalCode.PRIVACY_MISMATCH


def test_dp_sgd_of_one_step_over_many_images_is_refused(tmp_path: Path) -> None:
    mirror, _ = mirror_of(tmp_path, mechanism="dp-sgd", training__batch_size=64, training__local_epochs=1)
    event = SampledGaussianRelease(noise_multiplier=2.0, sampling_probability=0.01, steps=1)

    with pytest.raises(RefusalError, match="steps 100"):
        mirror.book("a", sampled(event), examples=6400)
    mirror.book("a", sampled(replace(event, steps=100)), examples=6400)


@pytest.mark.parametrize("relation", [Relation.REPLACE_ONE, Relation.ZERO_OUT])
def test_dp_sgd_is_counted_for_images_added_or_removed_only(tmp_path: Path, relation: Relation) -> None:
    mirror, _ = mirror_of(tmp_path, mechanism="dp-sgd", training__batch_size=10)
    event = SampledGaussianRelease(noise_multiplier=2.0, sampling_probability=0.1, steps=10)

    with pytest.raises(RefusalError, match="relation add-remove"):
        mirror.book("a", sampled(event, relation=relation), examples=100)


@pytest.mark.parametrize(
    ("probability", "steps", "match"),
    [
        (0.1, 20, ""),
        (10 / 33, 6, ""),
        (10 / 35, 8, ""),
        (1.0, 2, ""),
        (0.09, 20, "sampling probability 0.1"),
        (5e-324, 20, "sampling probability 0.1"),
        (0.7, 2, "sampling probability 0.714"),
        (10 / 33, 8, "steps 6"),
        (10 / 33, 2, "steps 6"),
        (1.0, 20, "steps 2"),
        (0.1, 22, "steps 20"),
    ],
)
def test_sampling_of_patients_must_fit_some_number_of_them(
    tmp_path: Path, probability: float, steps: int, match: str
) -> None:
    mirror, _ = mirror_of(
        tmp_path, mechanism="dp-sgd", unit="patient", training__batch_size=10, training__local_epochs=2,
        run__hospital_evaluation=False,
    )  # fmt: skip
    event = SampledGaussianRelease(noise_multiplier=20.0, sampling_probability=probability, steps=steps)

    with pytest.raises(RefusalError, match=match) if match else nullcontext():
        mirror.book("a", sampled(event, unit=Unit.PATIENT), examples=100)


def test_fewer_patients_than_a_batch_are_all_in_every_step(tmp_path: Path) -> None:
    mirror, _ = mirror_of(
        tmp_path, mechanism="dp-sgd", unit="patient", training__batch_size=10, run__hospital_evaluation=False
    )
    event = SampledGaussianRelease(noise_multiplier=20.0, sampling_probability=1.0, steps=1)

    mirror.book("a", sampled(event, unit=Unit.PATIENT), examples=3)


def sampled(event: SampledGaussianRelease, **changes: Any) -> Declaration:
    """Return a declaration of one update under DP-SGD."""
    common: dict[str, Any] = {
        "mechanism": "dp-sgd", "relation": Relation.ADD_REMOVE, "unit": Unit.RECORD, "account": "rdp", "spent": 7.9,
    }  # fmt: skip
    return declare([EVENT], event=event, **common | changes)


def test_unit_other_than_planned_is_refused(tmp_path: Path) -> None:
    mirror, _ = mirror_of(
        tmp_path, mechanism="dp-sgd", unit="patient", training__batch_size=10, run__hospital_evaluation=False
    )
    event = SampledGaussianRelease(noise_multiplier=1.0, sampling_probability=0.1, steps=10)
    record = declare(
        [EVENT], mechanism="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit.RECORD, event=event, account="rdp",
        spent=7.0,
    )  # fmt: skip

    with pytest.raises(RefusalError, match="unit patient"):
        mirror.book("a", record, examples=100)


def test_scores_are_booked_apart_and_never_pause(tmp_path: Path) -> None:
    mirror, progress = mirror_of(tmp_path, epsilon=1.21)
    metrics = declare([EVENT], mechanism="metrics", unit=Unit.RECORD, relation=Relation.ADD_REMOVE)

    for number in range(1, 7):
        mirror.book(
            "a", replace(metrics, spent=0.2001 * number, releases=number), examples=10, split="validation"
        )  # fmt: skip

    assert progress.spending["a"]["validation"].history.releases == 6
    assert "training" not in progress.spending["a"]
    assert not mirror.is_paused("a")


@pytest.mark.parametrize(
    ("privacy", "changes", "match"),
    [
        ({"evaluation_noise_multiplier": 24.3}, {}, "noise multiplier >= 24.3"),
        ({}, {"unit": Unit.PATIENT}, "unit record"),
        ({}, {"relation": Relation.REPLACE_ONE}, "relation add-remove"),
        ({}, {"clip_norm": 0.5}, "clip norm 1.0"),
        ({}, {"delta": 1e-4}, "delta"),
        ({}, {"mechanism": "update-gaussian"}, "mechanism 'metrics'"),
        (
            {},
            {"event": SampledGaussianRelease(noise_multiplier=50.0, sampling_probability=0.1, steps=1)},
            "GaussianRelease",
        ),
    ],
)
def test_scores_weaker_than_planned_are_refused(
    tmp_path: Path, privacy: dict[str, Any], changes: dict[str, Any], match: str
) -> None:
    mirror, progress = mirror_of(tmp_path, noise_multiplier=30.0, **privacy)
    metrics = declare([EVENT], mechanism="metrics", unit=Unit.RECORD, relation=Relation.ADD_REMOVE)

    with pytest.raises(RefusalError, match=match) as error:
        mirror.book("a", replace(metrics, **changes), examples=10, split="test")

    assert error.value.code is RefusalCode.PRIVACY_MISMATCH
    assert progress.spending["a"]["test"].history == History()


def test_scores_noised_as_planned_are_followed(tmp_path: Path) -> None:
    mirror, progress = mirror_of(tmp_path, evaluation_noise_multiplier=24.22, noise_multiplier=30.0, clip_norm=7.0)
    metrics = declare([EVENT], mechanism="metrics", unit=Unit.RECORD, relation=Relation.ADD_REMOVE)

    mirror.book("a", metrics, examples=10, split="test")

    assert progress.spending["a"]["test"].history.releases == 1


def test_release_epsilon_is_what_a_single_release_may_cost(tmp_path: Path) -> None:
    mirror, progress = mirror_of(tmp_path, release_epsilon=0.125)
    event = GaussianRelease(noise_multiplier=analytic_noise_multiplier(0.125, DELTA))

    mirror.book("a", declare([event]), examples=10)

    assert progress.spending["a"]["training"].history.releases == 1


def test_hospital_that_says_it_has_nothing_left_is_paused(tmp_path: Path) -> None:
    mirror, _ = mirror_of(tmp_path)

    mirror.pause("a")

    assert mirror.is_paused("a")


def test_uncovered_run_books_uncovered_answers(tmp_path: Path) -> None:
    mirror, progress = mirror_of(tmp_path, mechanism="none")

    mirror.book("a", None, examples=10)
    mirror.book("a", None, examples=10)

    assert progress.spending["a"]["training"].uncovered == 2
    assert not mirror.is_paused("a")
