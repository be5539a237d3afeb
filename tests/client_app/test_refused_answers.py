"""What a deployed hospital refuses has its code and spends nothing: by policy, by budget, or asked a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from federation.errors import SiteErrorCode
from tests.client_app.answers import DP_SGD, MECHANISMS, UPDATE, declared, scored, updated
from tests.client_app.clinic import Clinic

REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str], SiteErrorCode]] = {
    "simulated noise": (
        {}, {**UPDATE, "privacy__noise_source": "simulated"}, {"train", "evaluate"}, SiteErrorCode.POLICY_NOISE,
    ),
    "no mechanism": ({"privacy": {"mechanisms": ["dp-sgd"]}}, {}, {"train"}, SiteErrorCode.POLICY_MECHANISM),
    "other mechanism": ({"privacy": {"mechanisms": ["dp-sgd"]}}, UPDATE, {"train"}, SiteErrorCode.POLICY_MECHANISM),
    "nothing allowed": ({"privacy": {"mechanisms": []}}, DP_SGD, {"train"}, SiteErrorCode.POLICY_MECHANISM),
    "images for patients": ({"privacy": {"unit": "patient"}}, DP_SGD, {"train"}, SiteErrorCode.POLICY_MECHANISM),
    "weaker relation": ({"privacy": {"relation": "replace-one"}}, UPDATE, {"train"}, SiteErrorCode.POLICY_MECHANISM),
    "other model": ({"models": {"allowed": ["cnn"]}}, UPDATE, {"train", "evaluate"}, SiteErrorCode.POLICY_MODEL),
    "masking": ({"masking": {"required": True}}, UPDATE, {"train"}, SiteErrorCode.POLICY_MASKING),
    "few images": ({"training": {"min-examples": 61}}, UPDATE, {"train"}, SiteErrorCode.POLICY_EXAMPLES),
    "no metrics": ({"evaluation": {"metrics": "off"}}, UPDATE, {"evaluate"}, SiteErrorCode.POLICY_METRICS),
    "no exact metrics": ({"evaluation": {"metrics": "noised"}}, {}, {"evaluate"}, SiteErrorCode.POLICY_METRICS),
    "no evaluation": ({}, {"run__hospital_evaluation": False}, {"evaluate"}, SiteErrorCode.PLAN_REFUSED),
    "nothing is enough": (
        {"privacy": {"max-epsilon": 1e-9}}, {"privacy__mechanism": "update-gaussian"}, {"train"},
        SiteErrorCode.CONFIGURATION,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_budget_that_is_spent_has_its_code_and_nothing_more_is_spent(
    clinic: Callable[..., Clinic], mechanism: str
) -> None:
    cap = {"update-gaussian": 0.3, "dp-sgd": 0.2}[mechanism]
    hospital = clinic(policy={"privacy": {"max-epsilon": cap}}, **MECHANISMS[mechanism])
    number = 0
    while not (reply := hospital.train(f"m{number}")).has_error():
        number += 1
        assert number < 50
    before = hospital.rows()

    again = hospital.train("another")

    assert number >= 1
    assert reply.error.code == again.error.code == SiteErrorCode.BUDGET_EXHAUSTED
    assert hospital.rows() == before
    assert hospital.spend().epsilon({"update-gaussian": "linear", "dp-sgd": "rdp"}[mechanism]) <= cap


@pytest.mark.parametrize(("kind", "work"), [("train", "compute_update"), ("evaluate", "score")])
def test_answer_that_cannot_be_paid_for_or_was_given_costs_no_work(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch, kind: str, work: str
) -> None:
    def begin(*_: object, **__: object) -> None:
        raise AssertionError("Expected no work.")

    settings: dict[str, Any] = {**UPDATE, "privacy__evaluation_noise_multiplier": 5.0}
    hospital = clinic(policy={"privacy": {"max-epsilon": 1.0}}, **settings)
    while hospital.ask(kind, f"m{len(hospital.rows())}").has_content():
        pass
    monkeypatch.setattr(f"client_app.main.{work}", begin)

    codes = [hospital.ask(kind, message_id).error.code for message_id in ("another", "m0")]

    assert codes == [SiteErrorCode.BUDGET_EXHAUSTED, SiteErrorCode.ALREADY_RELEASED]


def test_budget_of_scores_is_spent_apart_from_that_of_updates(clinic: Callable[..., Clinic]) -> None:
    settings: dict[str, Any] = {**UPDATE, "privacy__evaluation_noise_multiplier": 5.0}
    hospital = clinic(policy={"privacy": {"max-epsilon": 1.0}, "evaluation": {"metrics": "noised"}}, **settings)
    scored(hospital, "e1")

    refused = hospital.evaluate("e2")

    assert refused.error.code == SiteErrorCode.BUDGET_EXHAUSTED
    assert hospital.rows().count("reserve") == 1
    assert declared(updated(hospital)).releases == 1
    assert declared(scored(hospital, "e3", "test")).releases == 1


@pytest.mark.parametrize(("reason", "kind"), [(name, kind) for name, case in REFUSALS.items() for kind in case[2]])
def test_request_that_the_policy_does_not_allow_has_its_code_and_spends_nothing(
    clinic: Callable[..., Clinic], reason: str, kind: str
) -> None:
    policy, settings, _, code = REFUSALS[reason]
    hospital = clinic(policy=policy, **settings)

    reply = hospital.ask(kind)

    assert (reply.error.code, reply.error.reason) == (code, code.sentence)
    assert "reserve" not in hospital.rows()
    assert hospital.spend().releases == hospital.spend("scans:validation").releases == 0


def test_scores_on_a_split_that_was_drawn_stay_at_home_under_a_mechanism(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(given_split=False, **UPDATE)

    assert hospital.evaluate().error.code == SiteErrorCode.POLICY_METRICS
    assert hospital.train().has_content()


def test_task_that_was_answered_is_not_answered_again(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(**UPDATE)
    updated(hospital, "m1")
    before = hospital.rows()

    again, other_run = hospital.train("m1"), hospital.train("m1", run_id=2)

    assert again.error.code == SiteErrorCode.ALREADY_RELEASED
    assert other_run.has_content()
    assert hospital.rows() == [*before, "reserve", "commit"]


def test_resumed_run_counts_its_own_budget_anew_and_never_leads_beyond_the_cap(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(policy={"privacy": {"max-epsilon": 0.5}}, **UPDATE, privacy__epsilon=0.3, run__resume=True)

    replies = [hospital.train(f"{run_id}-{number}", run_id=run_id) for run_id in (1, 2, 3) for number in range(2)]

    exhausted = SiteErrorCode.BUDGET_EXHAUSTED
    codes = [reply.error.code if reply.has_error() else None for reply in replies]
    assert codes == [None, exhausted, None, exhausted, exhausted, exhausted]  # Each costs 0.2.
    assert hospital.spend().linear <= 0.5
