"""Where the guard stands: before anything is trained, booked or moved on, and only the hospital can take it away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from attacks.guard_samples import Crafting, craft_model
from client_app.masking.preparation import Masking
from client_app.policy import SiteGuard, SitePolicy
from client_app.site import SimulatedSite
from client_app.updating import compute_update
from deploy.policy import describe_policy, find_doubts
from federation.config import Configuration, DataConfig, parse_configuration
from federation.errors import SiteError, SiteErrorCode
from federation.models import build_model
from federation.parameters import Parameters
from federation.preprocessing import to_unit_interval
from federation.records.tasks import TrainingTask
from tests.client_app.answers import MECHANISMS
from tests.client_app.calls import flat_configuration, wire_bytes
from tests.client_app.clinic import Clinic
from tests.client_app.model_guard.made_up_models import phantoms
from tests.client_app.test_updating import NoNoise

WIDE = {"model__hidden_units": 32}
REFUSED = SiteErrorCode.MODEL_CRAFTED
POLICY = SitePolicy.model_validate(
    {
        "hospital-id": "north",
        "state-dir": "/srv/state",
        "keys-dir": "/srv/keys",
        "data": {"id": "chest", "name": "folder", "root": "/"},
    }
)
OFF = POLICY.model_copy(update={"guard": SiteGuard(enabled=False)})


def crafted_for(clinic: Clinic) -> Parameters:
    images = to_unit_interval(torch.from_numpy(clinic.data.validation.images.copy()))
    model = build_model(clinic.configuration.model, clinic.data.info, seed=0)
    return craft_model(model, images, Crafting(), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mechanism", ["none", *MECHANISMS])
def test_crafted_model_is_refused_with_its_code_and_nothing_is_booked(
    clinic: Callable[..., Clinic], mechanism: str
) -> None:
    hospital = clinic(**WIDE, **MECHANISMS.get(mechanism, {}))

    reply = hospital.train(parameters=crafted_for(hospital))

    assert (reply.error.code, reply.error.reason) == (REFUSED, REFUSED.sentence)
    assert "reserve" not in hospital.rows()
    assert hospital.spend().releases == 0
    assert hospital.train("m2").has_content()


def test_reasons_stand_in_the_hospitals_log_and_do_not_leave(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(**WIDE)

    reply = hospital.train(parameters=crafted_for(hospital))

    assert "collinear-rows in hidden.weight" in hospital.log()
    assert b"collinear" not in wire_bytes(reply)
    assert b"hidden" not in wire_bytes(reply)


def test_no_result_of_a_crafted_model_is_kept_for_a_decision(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(**WIDE, aggregation__release="two-phase")

    reply = hospital.train(parameters=crafted_for(hospital))

    assert reply.error.code == REFUSED
    assert not hospital.slot.exists()


def test_server_cannot_switch_the_guard_of_a_deployed_hospital_off(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(**WIDE, guard__model="off")

    assert hospital.train(parameters=crafted_for(hospital)).error.code == REFUSED


@pytest.mark.parametrize("asked", ["on", "off"])
def test_hospitals_policy_lets_a_crafted_model_through_whatever_the_server_asks(
    clinic: Callable[..., Clinic], asked: str
) -> None:
    hospital = clinic(policy={"guard": {"enabled": False}}, **WIDE, guard__model=asked)

    assert hospital.train(parameters=crafted_for(hospital)).has_content()


def test_crafted_model_is_still_scored(clinic: Callable[..., Clinic]) -> None:
    hospital = clinic(**WIDE)

    assert hospital.evaluate(parameters=crafted_for(hospital)).has_content()


class CountedTurn:
    """Masking of which nothing but the turn is asked, and what it does with batch statistics."""

    batch_statistics = "refuse"
    turns = 0

    def take_turn(self) -> None:
        self.turns += 1
        raise SiteError(SiteErrorCode.MASKING_CACHE, "Here it ends.")


def simulated(policy: SitePolicy | None, asked: str, folder: Path) -> tuple[SiteErrorCode, int]:
    """Return how a masked task with a crafted model ends at a simulated site, and how many turns it took."""
    data = phantoms()
    configuration: Configuration = parse_configuration(flat_configuration(folder, **WIDE, guard__model=asked))
    site = SimulatedSite(
        hospital_id="a", data=DataConfig(), partition=0, partitions=1, seed=0, run="run", run_seed=0,
        seeded_noise=True, state_dir=folder,
    )  # fmt: skip
    images = to_unit_interval(torch.from_numpy(data.validation.images.copy()))
    model = build_model(configuration.model, data.info, seed=0)
    parameters = craft_model(model, images, Crafting(), torch.Generator().manual_seed(0))
    task = TrainingTask(parameters=parameters, model_version=0, plan=configuration.training, seed=7)
    masking = CountedTurn()
    with pytest.raises(SiteError) as ended:
        compute_update(
            task, configuration, replace(site, policy=policy), data,
            protection=None, noise=NoNoise(), masking=cast(Masking, masking),
        )  # fmt: skip
    return ended.value.code, masking.turns


@pytest.mark.parametrize(
    ("policy", "asked", "is_refused"),
    [
        (None, "on", True),
        (None, "off", False),
        (POLICY, "on", True),
        (POLICY, "off", True),
        (OFF, "on", True),
        (OFF, "off", False),
    ],
    ids=["none-on", "none-off", "policy-on", "policy-off", "off-on", "off-off"],
)
def test_at_a_simulated_site_the_stricter_of_policy_and_request_counts_before_a_turn_is_taken(
    tmp_path: Path, policy: SitePolicy | None, asked: str, is_refused: bool
) -> None:
    expected: tuple[Any, int] = (REFUSED, 0) if is_refused else (SiteErrorCode.MASKING_CACHE, 1)

    assert simulated(policy, asked, tmp_path) == expected


def test_refusal_comes_before_the_rehearsal(clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch) -> None:
    def rehearse(*_: object) -> None:
        raise AssertionError("Expected no rehearsal.")

    monkeypatch.setattr("client_app.updating.rehearse", rehearse)
    hospital = clinic(**WIDE, **MECHANISMS["update-gaussian"])

    assert hospital.train(parameters=crafted_for(hospital)).error.code == REFUSED


def test_policy_check_says_whether_crafted_models_are_refused() -> None:
    refused, trained = "A model that looks crafted to read images is refused", "is trained like any other"

    assert any(refused in sentence for sentence in describe_policy(POLICY))
    assert not any(trained in sentence for sentence in find_doubts(POLICY))
    assert not any(refused in sentence for sentence in describe_policy(OFF))
    assert any(trained in sentence for sentence in find_doubts(OFF))
