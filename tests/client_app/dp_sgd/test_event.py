"""What an update by DP-SGD costs is told beforehand, by plan and number of units; what breaks it is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from client_app.dp_sgd import dp_sgd_event
from federation.accounting.events import SampledGaussianRelease
from federation.config import PrivacyConfig, TrainingConfig
from federation.errors import PrivacyError, SiteError, SiteErrorCode
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.streams import Linear, Seeded, flat, images_of_patients, train


def event_of(units: int, **plan: Any) -> SampledGaussianRelease:
    return dp_sgd_event(units, TrainingConfig(**plan), PrivacyConfig(mechanism="dp-sgd"), 1.5)


@pytest.mark.parametrize(
    ("units", "batch_size", "epochs", "probability", "steps"),
    [
        (1000, 64, 1, 0.064, 16),
        (1000, 64, 3, 0.064, 48),
        (10, 64, 2, 1.0, 2),
        (64, 64, 1, 1.0, 1),
        (90, 64, 1, 64 / 90, 1),
        (100, 64, 1, 0.64, 2),
        (1, 1, 5, 1.0, 5),
    ],
)
def test_event_follows_from_the_number_of_units_and_the_plan(
    units: int, batch_size: int, epochs: int, probability: float, steps: int
) -> None:
    event = event_of(units, batch_size=batch_size, local_epochs=epochs)

    assert event == SampledGaussianRelease(noise_multiplier=1.5, sampling_probability=probability, steps=steps)


@pytest.mark.parametrize("patients", [[1, 2, 2, 2, 3, 3], [1, 1, 1, 1, 1, 1]])
def test_training_causes_the_event_that_was_told_beforehand(patients: list[int]) -> None:
    plan: dict[str, Any] = {"batch_size": 2, "local_epochs": 3, "optimizer": "sgd", "learning_rate": 0.1}
    noise = Seeded(0)

    event = train(
        Linear(), images_of_patients(patients), noise, plan=plan, unit="patient", clip_norm=0.25, noise_multiplier=1.5
    )

    assert event == event_of(len(set(patients)), **plan)
    assert noise.stddevs == [1.5 * 0.25] * event.steps


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, math.nan, math.inf])
def test_noise_that_protects_nothing_is_refused_before_anything_moves(noise_multiplier: float) -> None:
    model = Linear()

    with pytest.raises(PrivacyError, match="noise_multiplier="):
        train(model, make_images(4), Seeded(0), noise_multiplier=noise_multiplier)

    assert torch.equal(flat(model), flat(Linear()))


def test_no_units_are_refused() -> None:
    with pytest.raises(SiteError, match="units=0 >= 1") as refused:
        event_of(0)

    assert refused.value.code is SiteErrorCode.EMPTY_SPLIT


def test_logit_adjustment_is_refused_because_it_trains_on_private_counts() -> None:
    with pytest.raises(
        SiteError, match=r"label-skew = 'none' under dp-sgd, found 'logit-adjustment': .*counts"
    ) as refused:
        event_of(10, label_skew="logit-adjustment")

    assert refused.value.code is SiteErrorCode.PLAN_REFUSED


@pytest.mark.parametrize(
    ("privacy", "augmentation", "largest"),
    [
        ({"unit": "patient", "images_per_patient": 9}, "shift", 9),
        ({"augmentation_multiplicity": 9}, "shift", 9),
        ({"unit": "patient", "images_per_patient": 5, "augmentation_multiplicity": 4}, "shift-flip", 20),
        ({"unit": "patient", "images_per_patient": 9, "augmentation_multiplicity": 4}, "none", 9),
    ],
)
def test_unit_that_does_not_fit_into_memory_is_refused(
    privacy: dict[str, Any], augmentation: Any, largest: int
) -> None:
    config = PrivacyConfig(mechanism="dp-sgd", physical_batch=8, **privacy)

    with pytest.raises(SiteError, match=f"physical-batch=8 >= {largest}, .*raise it") as refused:
        dp_sgd_event(10, TrainingConfig(augmentation=augmentation), config, 1.0)

    assert refused.value.code is SiteErrorCode.PLAN_REFUSED


@pytest.mark.parametrize("privacy", [{"images_per_patient": 9}, {"augmentation_multiplicity": 9}])
def test_limits_that_do_not_apply_refuse_nothing(privacy: dict[str, Any]) -> None:
    config = PrivacyConfig(mechanism="dp-sgd", physical_batch=8, **privacy)

    assert dp_sgd_event(10, TrainingConfig(), config, 1.0).steps == 1
