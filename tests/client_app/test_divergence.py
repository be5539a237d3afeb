"""Training that diverges tells a server nothing about private images: neither by an error nor by what was spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

from client_app.noise.simulated import SimulatedNoise
from client_app.protection import plan_protection
from client_app.updating import compute_update, load_model
from federation.accounting.events import History
from federation.datasets.image_set import Dataset, ImageSet
from federation.errors import SiteError, SiteErrorCode
from federation.metrics import predict
from federation.parameters import Parameters, is_finite
from federation.records.answers import decode_hospital_scores, decode_model_update
from federation.records.tasks import TrainingTask
from tests.client_app.clinic import Clinic
from tests.client_app.test_updating import SITE

MECHANISMS: dict[str, dict[str, Any]] = {
    "update-gaussian": {"privacy__mechanism": "update-gaussian", "privacy__noise_multiplier": 24.22},
    "dp-sgd": {"privacy__mechanism": "dp-sgd", "privacy__noise_multiplier": 24.22},
    "ghost": {
        "privacy__mechanism": "dp-sgd", "privacy__noise_multiplier": 24.22, "privacy__grad_sample": "ghost",
    },
}  # fmt: skip
UNGUARDED: dict[str, Any] = {"guard": {"enabled": False}}
"""The model guard would refuse these traps; they have to tell nothing without it, too."""

DIVERGING: dict[str, Any] = {"optimizer": "sgd", "local_epochs": 4}


def trap(hospital: Clinic) -> Parameters:
    """Return finite parameters by which the network answers NaN on a white image, and otherwise as it did.

    One hidden unit adds up all 64 pixels. Beyond nine tenths of their sum it leaves the range of float32; below, its
    bias keeps it at zero.
    """
    crafted = {name: value.clone() for name, value in hospital.build().items()}
    weight, bias = (next(value for name, value in crafted.items() if name.endswith(end)) for end in ("weight", "bias"))
    assert weight.shape[1] == 64
    weight[0], bias[0] = 3.4e38 / (0.9 * 64), -3.3e38
    assert is_finite(crafted)
    return crafted


def neighbours(folder: Path, mechanism: str, **settings: Any) -> list[Clinic]:
    """Return two hospitals that differ in one image of each split, which is white in the first."""
    chosen = {**MECHANISMS.get(mechanism, {}), **settings}
    return [
        Clinic(folder / name, policy=UNGUARDED, white=white, **chosen) for name, white in (("white", 1), ("other", 0))
    ]


def test_trap_strikes_on_a_white_image_and_on_no_other(volume: Path) -> None:
    white, other = neighbours(volume, "none")

    for hospital, strikes in ((white, True), (other, False)):
        model = load_model(hospital.configuration, hospital.data, trap(hospital))
        logits = predict(model, hospital.data.train, torch.device("cpu"))
        assert torch.isfinite(logits).all(dim=1).tolist() == [not strikes] + [True] * 59


def test_trap_shows_without_a_mechanism(volume: Path) -> None:
    white, other = neighbours(volume, "none")

    assert white.train(parameters=trap(white)).error.code == SiteErrorCode.NON_FINITE_UPDATE
    assert other.train(parameters=trap(other)).has_content()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_trap_for_one_image_is_answered_and_booked_like_any_other_task(volume: Path, mechanism: str) -> None:
    found = []
    for hospital in neighbours(volume, mechanism):
        reply = hospital.train(parameters=trap(hospital), local_epochs=2)
        assert reply.has_content(), reply.error
        answer = decode_model_update(reply.content)
        assert is_finite(answer.update)
        found.append((answer.declaration, answer.examples, hospital.rows(), hospital.spend().committed))

    assert found[0] == found[1]
    assert found[0][2] == ["genesis", "reserve", "commit"]


def test_whole_update_of_a_trapped_hospital_is_noise_of_the_declared_size(volume: Path) -> None:
    white, _ = neighbours(volume, "update-gaussian")

    update = decode_model_update(white.train(parameters=trap(white)).content).update

    values = torch.cat([value.flatten() for value in update.values()])
    assert float(values.std()) == pytest.approx(24.22, rel=5 / (2 * values.numel()) ** 0.5)
    assert "diverged" in white.log()


def test_scores_of_a_trapping_model_are_answered_and_booked_for_both_neighbours(volume: Path) -> None:
    found = []
    for hospital in neighbours(volume, "update-gaussian"):
        reply = hospital.evaluate(parameters=trap(hospital))
        assert reply.has_content(), reply.error
        found.append((decode_hospital_scores(reply.content).declaration, hospital.rows()))

    assert found[0] == found[1]


def code_and_spend(hospital: Clinic, reply: Message) -> tuple[int, list[str], int]:
    assert not reply.has_content()
    return reply.error.code, hospital.rows(), hospital.spend().releases


@pytest.mark.parametrize("rate", [1e30, 1e38])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_plan_that_diverges_on_any_image_is_the_same_error_whatever_the_images(
    volume: Path, mechanism: str, rate: float
) -> None:
    hospitals = [
        Clinic(volume / str(seed), policy=UNGUARDED, seed=seed, white=white, **MECHANISMS[mechanism])
        for seed, white in ((0, 0), (1, 0), (2, 60))
    ]

    found = [code_and_spend(hospital, hospital.train(learning_rate=rate, **DIVERGING)) for hospital in hospitals]

    assert found == [(SiteErrorCode.TRAINING_FAILED, ["genesis"], 0)] * 3


class Untouchable(ImageSet):
    """Images that raise when anybody looks at them, or at their labels."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("images", "labels", "patients"):
            raise AssertionError(f"Expected nobody to look at {name}.")
        return super().__getattribute__(name)


@pytest.mark.parametrize("rate", [1e30, 1e38])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_plan_that_diverges_is_found_out_before_a_private_image_is_looked_at(
    volume: Path, mechanism: str, rate: float
) -> None:
    hospital = Clinic(volume, policy=UNGUARDED, **MECHANISMS[mechanism])
    settings, train = hospital.configuration, hospital.data.train
    plan = settings.training.model_copy(update={"learning_rate": rate, **DIVERGING})
    protection = plan_protection(settings, plan, train, policy=None, before=History(), during=History())
    closed = Untouchable(images=train.images, labels=train.labels)
    data = Dataset(info=hospital.data.info, train=closed, validation=closed, test=closed)
    task = TrainingTask(parameters=hospital.build(), model_version=0, plan=plan, seed=7)

    with pytest.raises(SiteError, match="no private image was looked at") as refused:
        compute_update(task, settings, SITE, data, protection=protection, noise=SimulatedNoise(0))

    assert refused.value.code is SiteErrorCode.TRAINING_FAILED
