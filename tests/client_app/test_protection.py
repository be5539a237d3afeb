"""How an update is protected: the stricter of policy and request, planned over events and never over data."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from client_app.policy import SitePolicy
from client_app.protection import Protection, plan_protection
from federation.accounting.accounts import account_of
from federation.accounting.events import (
    GaussianRelease,
    History,
    Relation,
    SampledGaussianRelease,
    Unit,
)
from federation.config import Configuration
from federation.datasets.image_set import ImageSet
from federation.errors import BudgetExhaustedError, SiteError, SiteErrorCode
from tests.client_app.calls import make_images

DELTA = 1e-5
# Noise multiplier times epsilon of one release by the classic formula, which the linear account charges.
CLASSIC = math.sqrt(2 * math.log(1.25 / DELTA))
FIFTH = GaussianRelease(noise_multiplier=24.22)


def _hyphenated(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in settings.items()}


def policy_of(*mechanisms: str, **privacy: Any) -> SitePolicy:
    table = {"mechanisms": list(mechanisms), "max-epsilon": 100.0, "max-delta": 0.1} | _hyphenated(privacy)
    return SitePolicy.model_validate(
        {
            "hospital-id": "north",
            "state-dir": "/srv/state",
            "keys-dir": "/srv/keys",
            "data": {"id": "scans", "name": "npz", "root": "/srv/own.npz"},
            "privacy": table,
        }
    )


OPEN = policy_of("dp-sgd", "update-gaussian")


def plan(
    policy: SitePolicy | None = OPEN,
    *,
    images: ImageSet | None = None,
    before: History | None = None,
    during: History | None = None,
    rounds: int = 10,
    batch_size: int = 10,
    epochs: int = 1,
    **privacy: Any,
) -> Protection:
    """Return the plan for 100 images, 10 rounds and the update mechanism, unless told otherwise."""
    configuration = Configuration.model_validate(
        {
            "privacy": {"mechanism": "update-gaussian", "epsilon": 8.0, "delta": DELTA} | _hyphenated(privacy),
            "aggregation": {"rounds": rounds},
            "run": {"hospital-evaluation": False},
            "training": {"batch-size": batch_size, "local-epochs": epochs},
        }
    )
    return plan_protection(
        configuration,
        configuration.training,
        images or make_images(100),
        policy=policy,
        before=before or History(),
        during=during or History(),
    )


def exact_delta(noise_multiplier: float, epsilon: float) -> float:
    """Return delta of one Gaussian release (Balle and Wang, arXiv 1805.06530, theorem 8), by SciPy."""
    half = 1 / (2 * noise_multiplier)
    return float(
        norm.cdf(half - epsilon * noise_multiplier)
        - math.exp(epsilon) * norm.cdf(-half - epsilon * noise_multiplier)
    )  # fmt: skip


@pytest.mark.parametrize(("asked", "least", "expected"), [(2.0, 3.0, 3.0), (3.0, 2.0, 3.0), (2.0, 0.0, 2.0)])
def test_more_noise_of_policy_and_request_wins(asked: float, least: float, expected: float) -> None:
    policy = policy_of("update-gaussian", min_noise_multiplier=least)

    protection = plan(policy, noise_multiplier=asked)

    assert protection.noise_multiplier == expected
    assert protection.event == GaussianRelease(noise_multiplier=expected)


@pytest.mark.parametrize("asked", [0.5, 20.0])
def test_bound_per_release_holds_whatever_noise_is_asked_for(asked: float) -> None:
    policy = policy_of("update-gaussian", account="pld", max_epsilon_per_release=0.5)

    found = plan(policy, noise_multiplier=asked, account="pld").noise_multiplier

    assert found >= asked
    assert exact_delta(found, 0.5) <= DELTA
    if found > asked:
        assert exact_delta(found * 0.98, 0.5) > DELTA


def test_planned_releases_share_the_budget_of_the_run() -> None:
    assert plan(epsilon=2.0, rounds=10).noise_multiplier == pytest.approx(CLASSIC / 0.2, rel=1e-3)
    assert plan(epsilon=2.0, rounds=10, releases=5).noise_multiplier == pytest.approx(CLASSIC / 0.4, rel=1e-3)


def test_smaller_budget_and_delta_of_policy_and_request_win() -> None:
    policy = policy_of("update-gaussian", max_epsilon=2.0, max_delta=DELTA / 10)

    protection = plan(policy, epsilon=8.0)

    assert (protection.grant.cap, protection.grant.budget, protection.grant.delta) == (2.0, 2.0, DELTA / 10)
    assert protection.noise_multiplier == pytest.approx(math.sqrt(2 * math.log(12.5 / DELTA)) / 0.2, rel=1e-3)
    assert plan(policy, epsilon=1.0).grant.budget == 1.0


def test_what_earlier_runs_spent_is_planned_around_under_the_constant_schedule() -> None:
    policy = policy_of("update-gaussian", max_epsilon=4.0)

    fresh = plan(policy, epsilon=8.0).noise_multiplier
    later = plan(policy, epsilon=8.0, before=History.of([FIFTH] * 10)).noise_multiplier

    assert fresh == pytest.approx(CLASSIC / 0.4, rel=1e-3)
    assert later == pytest.approx(CLASSIC / 0.2, rel=1e-3)
    together = History.of([FIFTH] * 10).plus(GaussianRelease(noise_multiplier=later), 10)
    assert account_of("linear").epsilon(together, DELTA) <= 4.0


def test_constant_schedule_does_not_change_within_the_run() -> None:
    multipliers = {plan(during=History.of([FIFTH] * number)).noise_multiplier for number in range(10)}

    assert len(multipliers) == 1


@pytest.mark.parametrize("by_hand", [{"noise_multiplier": 12.0}, {"release_epsilon": 0.2}])
def test_noise_set_by_hand_is_not_changed_by_earlier_runs(by_hand: dict[str, Any]) -> None:
    # What is left, 2, would ask for a multiplier of 24.22 in each of 10 releases.
    policy, before = policy_of("update-gaussian", max_epsilon=8.0), History.of([FIFTH] * 30)

    assert plan(policy, before=before, **by_hand) == plan(policy, **by_hand)
    assert plan(policy, before=before).noise_multiplier == pytest.approx(24.22, rel=1e-3)


def test_earlier_runs_that_left_nothing_are_a_spent_budget() -> None:
    policy = policy_of("update-gaussian", max_epsilon=4.0)

    with pytest.raises(BudgetExhaustedError, match="room for 10 releases"):
        plan(policy, before=History.of([FIFTH] * 20))


@pytest.mark.parametrize("schedule", ["constant", "remaining"])
def test_no_release_is_planned_beyond_the_planned_ones(schedule: str) -> None:
    made = History.of([FIFTH] * 3)

    assert plan(during=made, releases=4, schedule=schedule).noise_multiplier > 0
    with pytest.raises(BudgetExhaustedError, match="released=3 < planned=3"):
        plan(during=made, releases=3, schedule=schedule)
    with pytest.raises(BudgetExhaustedError, match="released=3 < planned=3"):
        plan(during=made, rounds=3, schedule=schedule)


@pytest.mark.parametrize(("first", "left"), [(0.2, 0.6), (0.1, 0.7), (0.5, 0.3)])
def test_remaining_schedule_divides_what_is_left(first: float, left: float) -> None:
    during = History.of([GaussianRelease(noise_multiplier=CLASSIC / first)])

    found = plan(epsilon=0.8, releases=4, schedule="remaining", during=during).noise_multiplier

    assert found == pytest.approx(CLASSIC / (left / 3), rel=2e-3)


def test_dp_sgd_is_planned_with_its_sampling_and_steps() -> None:
    protection = plan(mechanism="dp-sgd", account="rdp", batch_size=20, epochs=3, epsilon=4.0)

    event = protection.event
    assert isinstance(event, SampledGaussianRelease)
    assert (event.sampling_probability, event.steps) == (0.2, 15)
    assert (protection.mechanism.relation, protection.mechanism.unit) == (Relation.ADD_REMOVE, Unit.RECORD)
    account = account_of("rdp")
    assert account.epsilon(History().plus(event, 10), DELTA) <= 4.0
    less = replace(event, noise_multiplier=event.noise_multiplier * 0.97)
    assert account.epsilon(History().plus(less, 10), DELTA) > 4.0


def test_dp_sgd_over_patients_counts_patients() -> None:
    images = replace(make_images(100), patients=np.repeat(np.arange(50), 2))

    protection = plan(mechanism="dp-sgd", images=images, unit="patient", noise_multiplier=1.0)

    assert protection.event == SampledGaussianRelease(noise_multiplier=1.0, sampling_probability=0.2, steps=5)
    assert protection.mechanism.unit is Unit.PATIENT


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_update_mechanism_protects_the_update_by_the_relation_asked_for(relation: str) -> None:
    mechanism = plan(relation=relation, clip_norm=0.5, noise_multiplier=1.0).mechanism

    assert (mechanism.name, mechanism.unit, mechanism.clip_norm) == ("update-gaussian", Unit.UPDATE, 0.5)
    assert mechanism.sensitivity == {"zero-out": 0.5, "replace-one": 1.0}[relation]


@pytest.mark.parametrize(("allowed", "asked"), [("dp-sgd", "update-gaussian"), ("update-gaussian", "dp-sgd")])
def test_mechanism_that_the_policy_does_not_allow_is_refused(allowed: str, asked: str) -> None:
    with pytest.raises(SiteError) as refused:
        plan(policy_of(allowed), mechanism=asked)

    assert refused.value.code is SiteErrorCode.POLICY_MECHANISM


@pytest.mark.parametrize(
    ("demanded", "asked", "binds"),
    [
        ("pld", "linear", "linear"),
        ("linear", "pld", "linear"),
        ("rdp", "pld", "rdp"),
        ("pld", "rdp", "rdp"),
        ("pld", "pld", "pld"),
        ("default", "pld", "linear"),
        ("default", "default", "linear"),
    ],
)
def test_stricter_account_of_policy_and_request_binds(demanded: str, asked: str, binds: str) -> None:
    assert plan(policy_of("update-gaussian", account=demanded), account=asked).grant.account == binds


@pytest.mark.parametrize(
    ("demanded", "asked", "patients", "allowed"),
    [
        ("default", "record", True, False),
        ("default", "patient", True, True),
    ],
)
def test_patients_are_protected_where_policy_or_files_name_them(
    demanded: str, asked: str, patients: bool, allowed: bool
) -> None:
    images = make_images(100)
    images = replace(images, patients=np.repeat(np.arange(50), 2)) if patients else images

    def ask() -> Protection:
        return plan(
            policy_of("dp-sgd", unit=demanded), images=images, mechanism="dp-sgd", unit=asked, noise_multiplier=1.0
        )

    if allowed:
        assert ask().mechanism.unit.value == asked
    else:
        with pytest.raises(SiteError, match=r"privacy\.unit='patient'") as refused:
            ask()
        assert refused.value.code is SiteErrorCode.POLICY_MECHANISM


def test_relation_that_the_policy_demands_is_not_weakened() -> None:
    strict = policy_of("update-gaussian", relation="replace-one")

    with pytest.raises(SiteError, match="replace-one") as refused:
        plan(strict, relation="zero-out")
    assert refused.value.code is SiteErrorCode.POLICY_MECHANISM
    assert plan(strict, relation="replace-one").mechanism.relation is Relation.REPLACE_ONE
    assert plan(OPEN, relation="replace-one").mechanism.relation is Relation.REPLACE_ONE


@pytest.mark.parametrize(("delta", "warned"), [(0.01, True), (0.05, True), (0.0099, False)])
def test_delta_at_which_one_image_could_be_published_is_warned_of(
    caplog: pytest.LogCaptureFixture, delta: float, warned: bool
) -> None:
    with caplog.at_level(logging.WARNING, "aegis.client"):
        plan(delta=delta, noise_multiplier=1.0)

    assert ("says little" in caplog.text) is warned


@pytest.mark.parametrize(("delta", "warned"), [(0.02, True), (0.019, False)])
def test_delta_is_compared_with_the_number_of_patients_where_they_are_protected(
    caplog: pytest.LogCaptureFixture, delta: float, warned: bool
) -> None:
    images = replace(make_images(100), patients=np.repeat(np.arange(50), 2))

    with caplog.at_level(logging.WARNING, "aegis.client"):
        plan(mechanism="dp-sgd", images=images, unit="patient", delta=delta, noise_multiplier=1.0)

    assert ("says little" in caplog.text) is warned


def test_plan_depends_on_the_number_of_images_and_on_nothing_they_hold() -> None:
    assert plan(mechanism="dp-sgd", images=make_images(100, seed=1), noise_multiplier=1.0) == plan(
        mechanism="dp-sgd", images=make_images(100, seed=2), noise_multiplier=1.0
    )
