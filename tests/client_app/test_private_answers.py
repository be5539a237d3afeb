"""A deployed hospital's answers under its policy and ledger: what they declare, what is refused, what is spent."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from client_app.ledger import Ledger
from federation.accounting.accounts import account_of
from federation.accounting.events import GaussianRelease, History, Relation, SampledGaussianRelease, Unit
from federation.errors import LedgerError, SiteErrorCode
from federation.parameters import Parameters
from federation.records.answers import HospitalScores, ModelUpdate, decode_hospital_scores, decode_model_update
from federation.records.declarations import Declaration
from tests.client_app.clinic import DELTA, Clinic

BY_HAND = {"privacy__noise_multiplier": 24.22}
UPDATE = {"privacy__mechanism": "update-gaussian", **BY_HAND}
DP_SGD = {"privacy__mechanism": "dp-sgd", "privacy__account": "rdp", **BY_HAND}
MECHANISMS = {"update-gaussian": UPDATE, "dp-sgd": DP_SGD}


@pytest.fixture
def clinic(volume: Path) -> Callable[..., Clinic]:
    return lambda **settings: Clinic(volume, **settings)


def updated(clinic: Clinic, message_id: str = "m1", **options: Any) -> ModelUpdate:
    reply = clinic.train(message_id, **options)
    assert reply.has_content(), reply.error
    return decode_model_update(reply.content)


def scored(clinic: Clinic, message_id: str = "e1", split: str = "validation") -> HospitalScores:
    reply = clinic.evaluate(message_id, split)
    assert reply.has_content(), reply.error
    return decode_hospital_scores(reply.content)


def declared(answer: ModelUpdate | HospitalScores) -> Declaration:
    assert answer.declaration is not None
    return answer.declaration


def values(update: Parameters) -> torch.Tensor:
    return torch.cat([value.flatten() for value in update.values()])


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


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str], SiteErrorCode]] = {
    "simulated noise": (
        {}, {**UPDATE, "privacy__noise_source": "simulated"}, {"train", "evaluate"}, SiteErrorCode.POLICY_NOISE,
    ),
    "no mechanism": ({"privacy": {"mechanisms": ["dp-sgd"]}}, {}, {"train"}, SiteErrorCode.POLICY_MECHANISM),
    "other mechanism": ({"privacy": {"mechanisms": ["dp-sgd"]}}, UPDATE, {"train"}, SiteErrorCode.POLICY_MECHANISM),
    "nothing allowed": ({"privacy": {"mechanisms": []}}, DP_SGD, {"train"}, SiteErrorCode.POLICY_MECHANISM),
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


def diverge(model: torch.nn.Module, *_: object, **__: object) -> None:
    """Train as if a gradient had been NaN."""
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = math.nan


def test_training_that_is_not_finite_releases_and_spends_nothing(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_app.updating.train_locally", diverge)
    hospital = clinic()

    reply = hospital.train()

    assert not reply.has_content()
    assert reply.error.code == SiteErrorCode.NON_FINITE_UPDATE
    assert "reserve" not in hospital.rows()
    assert hospital.spend().releases == 0


def test_update_that_is_not_finite_leaves_as_noise_alone(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("client_app.updating.train_locally", diverge)
    hospital = clinic(**UPDATE)

    released = values(updated(hospital).update)

    assert float(released.std()) == pytest.approx(24.22, rel=5 / math.sqrt(2 * released.numel()))
    assert hospital.spend().committed == 1
    assert "diverged" in hospital.log()


def test_dp_sgd_by_a_plan_that_diverges_on_any_images_releases_and_spends_nothing(
    clinic: Callable[..., Clinic],
) -> None:
    hospital = clinic(**DP_SGD)

    reply = hospital.train(optimizer="sgd", learning_rate=1e38, local_epochs=3)

    assert not reply.has_content()
    assert reply.error.code == SiteErrorCode.TRAINING_FAILED
    assert "reserve" not in hospital.rows()
    assert hospital.spend().releases == 0


def test_noise_that_fails_gives_the_cost_back(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def stop(*_: object, **__: object) -> None:
        raise OSError("no entropy")

    hospital = clinic(**UPDATE)
    monkeypatch.setattr("client_app.main.protect", stop)

    reply = hospital.train()

    assert reply.error.code == SiteErrorCode.INTERNAL
    assert hospital.rows() == ["genesis", "reserve", "cancel"]
    assert hospital.spend().releases == 0


def test_answer_whose_commit_fails_does_not_leave(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def refuse(*_: object) -> None:
        raise LedgerError("full")

    hospital = clinic(**UPDATE)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", refuse)
        reply = hospital.train()

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert not reply.has_content()
    assert hospital.spend().releases == 1


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client give up at once where another one holds the ledger."""
    original = Ledger.open

    def open_at_once(*arguments: Any, **options: Any) -> Ledger:
        return original(*arguments, **options, wait_s=0)

    monkeypatch.setattr(Ledger, "open", open_at_once)


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_ledger_that_another_client_holds_is_unavailable(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    hospital = clinic(**UPDATE)
    with hospital.open_ledger(), monkeypatch.context() as patch:
        impatient(patch)
        reply = hospital.ask(kind)

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert "only client" in hospital.log()
    assert hospital.rows() == ["genesis"]
    assert hospital.ask(kind).has_content()


def corrupt(hospital: Clinic) -> None:
    content = bytearray(hospital.ledger.read_bytes())
    content[: len(content) // 2] = b"x" * (len(content) // 2)
    hospital.ledger.write_bytes(bytes(content))


def drop_the_anchor(hospital: Clinic) -> None:
    (hospital.folder / "keys" / "north.anchor").unlink()


def drop_the_ledger(hospital: Clinic) -> None:
    hospital.ledger.unlink()


@pytest.mark.parametrize("damage", [corrupt, drop_the_anchor, drop_the_ledger])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_damaged_ledger_is_unavailable_and_nothing_leaves(
    clinic: Callable[..., Clinic], kind: str, damage: Callable[[Clinic], None]
) -> None:
    hospital = clinic(**UPDATE)
    updated(hospital, "first")
    damage(hospital)

    reply = hospital.ask(kind, "second")

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert not reply.has_content()


def test_old_backup_of_the_ledger_is_noticed_and_nothing_leaves(clinic: Callable[..., Clinic], tmp_path: Path) -> None:
    hospital = clinic(**UPDATE)
    updated(hospital, "m1")
    shutil.copy(hospital.ledger, tmp_path / "backup")
    updated(hospital, "m2")
    shutil.copy(tmp_path / "backup", hospital.ledger)

    reply = hospital.train("m3")

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert not reply.has_content()


@pytest.mark.parametrize("place", ["state_dir", "keys_dir"])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_folder_that_cannot_be_written_makes_the_ledger_unavailable(
    clinic: Callable[..., Clinic], place: str, kind: str
) -> None:
    hospital = clinic(policy={place: "/proc/aegis"}, **UPDATE)  # Nobody can make a folder there, root included.

    reply = hospital.ask(kind)

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert not reply.has_content()
