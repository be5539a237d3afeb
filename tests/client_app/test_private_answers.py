"""A deployed hospital's answers under its policy and ledger: what they declare, what they carry, what is booked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from federation.accounting.accounts import account_of
from federation.accounting.events import GaussianRelease, History, Relation, SampledGaussianRelease, Unit
from tests.client_app.answers import DP_SGD, MECHANISMS, UPDATE, declared, scored, updated, values
from tests.client_app.clinic import DELTA, Clinic


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_declaration_is_what_the_ledger_holds(clinic: Callable[..., Clinic], mechanism: str) -> None:
    hospital = clinic(**MECHANISMS[mechanism])
    updated(hospital, "m1")

    found = declared(updated(hospital, "m2"))

    spend, account = hospital.spend(), {"update-gaussian": "linear", "dp-sgd": "rdp"}[mechanism]
    assert spend.history == History().plus(found.event, 2)
    assert found.spent == spend.epsilon(account) == account_of(account).epsilon(spend.history, DELTA)
    assert (found.releases, found.uncovered, spend.committed) == (2, 0, 2)
    assert (found.mechanism, found.account, found.delta, found.cap) == (mechanism, account, DELTA, 100.0)
    assert spend.protections == ((found.relation, found.unit),)


def test_event_of_an_update_is_the_mechanism_that_was_asked_for(clinic: Callable[..., Clinic]) -> None:
    found = declared(updated(clinic(**UPDATE, privacy__clip_norm=0.5, privacy__relation="replace-one")))

    assert found.event == GaussianRelease(noise_multiplier=24.22)
    assert (found.relation, found.unit, found.clip_norm) == (Relation.REPLACE_ONE, Unit.UPDATE, 0.5)


def test_event_of_dp_sgd_is_the_plan_that_was_asked_for(clinic: Callable[..., Clinic]) -> None:
    found = declared(updated(clinic(**DP_SGD), batch_size=15, local_epochs=2))

    assert found.event == SampledGaussianRelease(noise_multiplier=24.22, sampling_probability=0.25, steps=8)
    assert (found.relation, found.unit, found.clip_norm) == (Relation.ADD_REMOVE, Unit.RECORD, 1.0)


def test_released_update_carries_the_noise_that_it_declares(clinic: Callable[..., Clinic]) -> None:
    released = values(updated(clinic(**UPDATE, privacy__clip_norm=0.5)).update)

    # The clipped update has norm 0.5 at most, the noise of each coordinate a deviation of 24.22 * 0.5.
    assert float(released.std()) == pytest.approx(24.22 * 0.5, rel=5 / math.sqrt(2 * released.numel()))


def test_released_dp_sgd_update_carries_the_noise_that_it_declares(clinic: Callable[..., Clinic]) -> None:
    step: dict[str, Any] = {"batch_size": 60, "optimizer": "sgd", "learning_rate": 1.0}

    released = values(updated(clinic(**DP_SGD), **step).update)

    # One step over everybody: the noise on the mean gradient of 60 images.
    assert float(released.std()) == pytest.approx(24.22 / 60, rel=5 / math.sqrt(2 * released.numel()))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_noise_is_fresh_in_every_answer(clinic: Callable[..., Clinic], mechanism: str) -> None:
    hospital = clinic(**MECHANISMS[mechanism])

    first, second = (values(updated(hospital, name).update) for name in ("m1", "m2"))

    assert not torch.isclose(first, second).any()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_policy_demands_more_noise_than_was_asked_for_and_gets_it(
    clinic: Callable[..., Clinic], mechanism: str
) -> None:
    hospital = clinic(policy={"privacy": {"min-noise-multiplier": 30.0}}, **MECHANISMS[mechanism])

    found = declared(updated(hospital))

    assert found.event.noise_multiplier == 30.0
    assert hospital.spend().history == History.of([found.event])


def test_released_noise_is_the_policys_and_not_the_smaller_one_asked_for(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(policy={"privacy": {"min-noise-multiplier": 100.0}}, **UPDATE)

    released = values(updated(hospital).update)

    assert float(released.std()) == pytest.approx(100.0, rel=5 / math.sqrt(2 * released.numel()))


def test_dp_sgd_trains_with_the_policys_noise_and_not_with_the_smaller_one_asked_for(
    clinic: Callable[..., Clinic],
) -> None:
    step: dict[str, Any] = {"batch_size": 60, "optimizer": "sgd", "learning_rate": 1.0}
    hospital = clinic(policy={"privacy": {"min-noise-multiplier": 100.0}}, **DP_SGD)

    released = values(updated(hospital, **step).update)

    assert float(released.std()) == pytest.approx(100.0 / 60, rel=5 / math.sqrt(2 * released.numel()))


def test_noised_scores_declare_what_the_ledger_holds(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(policy={"evaluation": {"metrics": "noised"}}, **UPDATE)
    scored(hospital, "e1")

    answer = scored(hospital, "e2")

    found, spend = declared(answer), hospital.spend("scans:validation")
    assert spend.history == History().plus(found.event, 2)
    assert (found.spent, found.releases, found.uncovered) == (spend.pld, 2, 0)
    assert (found.mechanism, found.relation, found.unit) == ("metrics", Relation.ADD_REMOVE, Unit.RECORD)
    assert answer.scores.auroc is None
    assert answer.scores.examples == 20
    assert hospital.spend().releases == 0


def test_noised_accuracy_is_fresh_in_every_answer(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(**UPDATE, privacy__evaluation_noise_multiplier=5.0)

    found = {scored(hospital, f"e{number}").scores.accuracy for number in range(12)}

    assert len(found) >= 3  # Of 20 images; by chance fewer than once in a million runs.


def test_exact_answers_are_booked_as_unprotected_and_cover_nothing_afterwards(clinic: Callable[..., Clinic]) -> None:
    open_run = clinic()
    assert updated(open_run, "m1").declaration is None
    assert scored(open_run, "e1").declaration is None

    assert (open_run.spend().unprotected, open_run.spend("scans:validation").unprotected) == (1, 1)
    private = clinic(**UPDATE)
    assert declared(updated(private, "m2")).uncovered == 1
    assert declared(scored(private, "e2")).uncovered == 1
    assert declared(scored(private, "e3", "test")).uncovered == 0
