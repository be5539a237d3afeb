"""What a run claims in words: no epsilon without noise, none where it does not hold, and never a smaller one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from federation.config import MaskingConfig, PrivacyConfig, TrainingConfig
from server_app.guarantees import describe_guarantees
from server_app.summary import HospitalSummary, LedgerSummary, ScoresSummary

PRIVATE = PrivacyConfig(mechanism="dp-sgd")
UNMASKED: dict[str, Any] = {"masking": MaskingConfig(), "training": TrainingConfig()}


def ledger(**changes: Any) -> LedgerSummary:
    values: dict[str, Any] = {
        "mechanism": "dp-sgd", "relation": "add-remove", "unit": "record", "delta": 1e-5, "account": "pld",
        "releases": 5, "spent": 3.2, "cap": 8.0, "linear": 12.0, "rdp": 3.5, "pld": 3.2, "uncovered": 0,
        "paused": False, "contradictions": 0,
    }  # fmt: skip
    return LedgerSummary(**values | changes)


def describe(privacy: PrivacyConfig = PRIVATE, **ledgers: LedgerSummary | None) -> list[str]:
    hospitals = {
        name: HospitalSummary(
            examples=10, dispatched=1, updates=1, refused={}, accuracy=None, auroc=None, ledger=item
        )
        for name, item in ledgers.items()
    }  # fmt: skip
    return describe_guarantees(privacy, hospitals, **UNMASKED)


def claimed(sentences: list[str]) -> list[tuple[float, float]]:
    """Every (epsilon, delta) that is claimed."""
    found = [re.search(r"epsilon ([\d.e+-]+) and delta ([\d.e-]+\d)", sentence) for sentence in sentences]
    return [(float(match[1]), float(match[2])) for match in found if match]


def test_run_without_a_mechanism_claims_no_epsilon() -> None:
    sentences = describe(PrivacyConfig(), a=ledger())

    assert claimed(sentences) == []
    assert "no epsilon is claimed" in " ".join(sentences)


@pytest.mark.parametrize("privacy", [PrivacyConfig(), PRIVATE])
def test_every_sentence_says_whether_it_is_guaranteed(privacy: PrivacyConfig) -> None:
    starts = ("Guaranteed", "Not guaranteed", "Measured, not guaranteed", "No epsilon is claimed")

    assert all(sentence.startswith(starts) for sentence in describe(privacy, a=ledger(), b=ledger(uncovered=1)))


def test_largest_spend_is_what_all_hospitals_are_promised() -> None:
    assert claimed(describe(a=ledger(spent=1.0), b=ledger(spent=3.2), c=None)) == [(3.2, 1e-5)]


@pytest.mark.parametrize("spent", [3.2, 1.0049, 7.99999, 0.0123449, 123.449, 1234.4])
@pytest.mark.parametrize("delta", [1e-5, 1.23456e-5, 0.000999999])
def test_claim_is_never_below_what_was_spent(spent: float, delta: float) -> None:
    ((epsilon, claimed_delta),) = claimed(describe(a=ledger(spent=spent, delta=delta)))

    assert spent <= epsilon <= spent * 1.01
    assert delta <= claimed_delta <= delta * 1.01


def test_round_numbers_stay_round() -> None:
    assert "epsilon 8 and delta 1e-05," in " ".join(describe(a=ledger(spent=7.99998)))


def test_claim_is_made_apart_for_each_mechanism_unit_relation_and_delta() -> None:
    sentences = describe(
        a=ledger(spent=1.0),
        b=ledger(spent=2.0, unit="patient"),
        c=ledger(spent=3.0, mechanism="update-gaussian", unit="update", relation="zero-out"),
        d=ledger(spent=4.0, delta=1e-6),
    )

    assert sorted(claimed(sentences)) == [(1.0, 1e-5), (2.0, 1e-5), (3.0, 1e-5), (4.0, 1e-6)]
    text = " ".join(sentences)
    assert "when one training image is added or removed" in text
    assert "when one patient is added or removed" in text
    assert "when all that a hospital put into one update is replaced by nothing" in text


@pytest.mark.parametrize("beside", [{"uncovered": 2}, {"contradictions": 1}])
def test_nothing_is_claimed_for_a_hospital_whose_epsilon_does_not_cover_everything(beside: dict[str, int]) -> None:
    sentences = describe(a=ledger(spent=1.0), b=ledger(spent=5.0, **beside))

    assert claimed(sentences) == [(1.0, 1e-5)]
    assert [sentence for sentence in sentences if sentence.startswith("No epsilon is claimed for b:")]


def test_run_in_which_nobody_declared_claims_nothing() -> None:
    assert claimed(describe(a=None)) == []


def test_seeded_noise_is_said_to_protect_nobody() -> None:
    assert "protects nobody" in " ".join(describe(a=ledger()))


def about_scores(refused: dict[str, int] | None = None, **splits: ScoresSummary) -> list[str]:
    """Return what is said of scores when one hospital told `splits` and another nothing."""
    common: dict[str, Any] = {"examples": 10, "dispatched": 1, "updates": 1, "accuracy": None, "auroc": None}
    hospitals = {
        "a": HospitalSummary(**common, refused=refused or {}, scores=splits),
        "b": HospitalSummary(**common, refused={"late-reply": 1}),
    }
    return [
        text
        for text in describe_guarantees(PRIVATE, hospitals, **UNMASKED)[2:-1]
        if "scores" in text or "accurac" in text
    ]


def told(epsilon: float, delta: float = 1e-5, uncovered: int = 0) -> ScoresSummary:
    return ScoresSummary(releases=2, epsilon=epsilon, delta=delta, uncovered=uncovered)


def test_scores_are_claimed_at_the_largest_epsilon_of_a_split_and_their_sum_is_named() -> None:
    (sentence,) = about_scores(validation=told(1.2345, 1e-6), test=told(0.5, 1e-5))

    assert claimed([sentence]) == [(1.24, 1e-5)]
    assert "An image lies in one split" in sentence
    assert "patient" in sentence
    assert "sum" in sentence


def test_scores_that_nobody_told_are_said_to_have_stayed_at_home() -> None:
    (sentence,) = about_scores()

    assert "stayed at home" in sentence
    assert claimed([sentence]) == []


def test_scores_that_epsilon_does_not_cover_are_not_claimed() -> None:
    sentences = about_scores(validation=told(5.0, uncovered=1), test=told(0.5))

    assert claimed(sentences) == [(0.5, 1e-5)]
    assert len(sentences) == 2
    assert sentences[1].startswith("No epsilon is claimed for scores")
    assert claimed(about_scores(validation=told(5.0, uncovered=1))) == []


@pytest.mark.parametrize("reason", ["privacy-mismatch", "budget-contradiction", "malformed"])
def test_scores_told_without_an_acceptable_declaration_did_not_stay_at_home(reason: str) -> None:
    (sentence,) = about_scores({f"evaluation:{reason}": 1})

    assert sentence.startswith("Not guaranteed")
    assert [text.split(":")[0] for text in about_scores({f"evaluation:{reason}": 1}, test=told(0.5))] == [
        "Guaranteed (metrics)", "Not guaranteed",
    ]  # fmt: skip


def late(**changes: Any) -> list[str]:
    """Return the sentences of a run whose only hospital had `changes`."""
    values: dict[str, Any] = {
        "examples": 1,
        "dispatched": 9,
        "updates": 1,
        "refused": {},
        "accuracy": None,
        "auroc": None,
    }
    return describe_guarantees(PRIVATE, {"a": HospitalSummary(**values | changes, ledger=ledger())}, **UNMASKED)


def test_epsilon_that_was_spent_on_updates_that_came_too_late_is_told() -> None:
    (told,) = [sentence for sentence in late(refused={"late-reply": 2, "too-stale": 3}) if "came too late" in sentence]

    assert told.startswith("Not guaranteed")
    assert "5 updates came too late: they had left" in told


def test_results_that_were_discarded_unreleased_are_told_apart_from_those_that_left() -> None:
    (told,) = [sentence for sentence in late(refused={"discarded": 4}, discarded=4) if "came too late" in sentence]

    assert told.startswith("Guaranteed (two-phase release): 4 results")


def test_run_without_late_updates_says_nothing_of_them() -> None:
    assert not [sentence for sentence in late(refused={"node-lost": 4}) if "came too late" in sentence]
