"""What an update is known by when it is let in: its norm, the noise it declares, and its angle to the last step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.accounting.events import Event, GaussianRelease, Relation, SampledGaussianRelease, Unit
from federation.datasets.image_set import Task
from federation.errors import RefusalCode, RefusalError, SiteErrorCode
from federation.parameters import Parameters
from federation.records.answers import Discarded, Enrolment, ModelUpdate, Readiness
from federation.records.declarations import Declaration
from server_app.admission import admit_update, declared_variance, refusal_of, require_readiness
from server_app.aggregation.rule import Update
from server_app.dispatch import Dispatch
from server_app.roster import Member

ENROLMENT = Enrolment(
    hospital_id="north", examples=10, task=Task.MULTICLASS, classes=2, channels=1, height=4, width=4, label_digest="x"
)
MEMBER = Member(node_id=2, enrolment=ENROLMENT)
DISPATCH = Dispatch(
    message_id="m", node_id=2, hospital_id="north", kind="train", model_version=4, sent_at=0.0, number=17
)  # fmt: skip
VALUES = st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4)


def tensors(*values: float) -> Parameters:
    return {"w": torch.tensor(values[:-1]), "b": torch.tensor([[values[-1]]])}


def answer(update: Parameters, **changes: Any) -> ModelUpdate:
    return replace(ModelUpdate(hospital_id="north", model_version=4, examples=7, update=update), **changes)


def admit(update: Parameters, direction: Parameters | None = None) -> Update:
    return admit_update(answer(update), DISPATCH, MEMBER, update, direction)


def declaration(event: Event) -> Declaration:
    sampled = isinstance(event, SampledGaussianRelease)
    return Declaration(
        mechanism="dp-sgd" if sampled else "update-gaussian",
        relation=Relation.ADD_REMOVE if sampled else Relation.ZERO_OUT,
        unit=Unit.RECORD if sampled else Unit.UPDATE,
        clip_norm=3.0,
        event=event,
        delta=1e-5,
        account="rdp",
        spent=1.0,
        cap=8.0,
        releases=1,
    )


def test_update_is_known_by_its_task_its_hospital_and_its_size() -> None:
    update = tensors(3.0, 0.0, 0.0, 4.0)

    found = admit(update)

    assert (found.number, found.hospital_id, found.base_version, found.examples) == (17, "north", 4, 7)
    assert (found.norm, found.noise_variance, found.cosine) == (5.0, 0.0, 0.0)
    assert found.load() is update


@settings(deadline=None)
@given(VALUES, VALUES)
def test_angle_is_that_of_all_values_together(update: list[float], direction: list[float]) -> None:
    found = admit(tensors(*update), tensors(*direction)).cosine

    left, right = np.array(update, "float64"), np.array(direction, "float64")
    lengths = np.linalg.norm(left) * np.linalg.norm(right)
    assert -1 - 1e-5 <= found <= 1 + 1e-5
    # Squares below the least float32 count as zero.
    if min(np.linalg.norm(left), np.linalg.norm(right)) > 1e-15:
        assert found == pytest.approx(left @ right / lengths, abs=1e-5)


@pytest.mark.parametrize(
    ("update", "direction", "cosine"),
    [
        ((1.0, 2.0, 3.0, 4.0), (2.0, 4.0, 6.0, 8.0), 1.0),
        ((1.0, 2.0, 3.0, 4.0), (-1.0, -2.0, -3.0, -4.0), -1.0),
        ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 5.0), 0.0),
        ((0.0, 0.0, 0.0, 0.0), (1.0, 2.0, 3.0, 4.0), 0.0),
        ((1.0, 2.0, 3.0, 4.0), (0.0, 0.0, 0.0, 0.0), 0.0),
    ],
)
def test_angle_along_against_across_and_to_nothing(
    update: tuple[float, ...], direction: tuple[float, ...], cosine: float
) -> None:
    assert admit(tensors(*update), tensors(*direction)).cosine == pytest.approx(cosine, abs=1e-6)


def test_direction_that_is_not_finite_is_no_direction() -> None:
    with pytest.raises(RefusalError, match="NaN or infinity"):
        admit(tensors(1.0, 2.0, 3.0, 4.0), tensors(math.nan, 0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("event", "variance"),
    [
        (GaussianRelease(noise_multiplier=3.0), 9.0),
        (SampledGaussianRelease(noise_multiplier=0.5, sampling_probability=0.1, steps=1), 0.25),
        (SampledGaussianRelease(noise_multiplier=0.5, sampling_probability=0.1, steps=40), 10.0),
    ],
)
def test_variance_is_the_squared_multiplier_times_the_noised_steps(event: Event, variance: float) -> None:
    assert declared_variance(declaration(event)) == variance
    update = tensors(1.0, 1.0, 1.0, 1.0)
    found = admit_update(answer(update, declaration=declaration(event)), DISPATCH, MEMBER, update)
    assert found.noise_variance == variance


def test_update_without_a_declaration_declares_no_noise() -> None:
    assert declared_variance(None) == 0.0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"hospital_id": "south"}, RefusalCode.WRONG_HOSPITAL),
        ({"model_version": 3}, RefusalCode.WRONG_VERSION),
        ({"model_version": 5}, RefusalCode.WRONG_VERSION),
        ({"examples": 11}, RefusalCode.MALFORMED),
        ({"update": tensors(1.0, 2.0, math.inf, 4.0)}, RefusalCode.NON_FINITE),
        ({"update": {"w": torch.zeros(3)}}, RefusalCode.WRONG_NAMES),
        ({"update": {"w": torch.zeros(3), "b": torch.zeros(1)}}, RefusalCode.WRONG_SHAPE),
        ({"update": {"w": torch.zeros(3), "b": torch.zeros(1, 1).double()}}, RefusalCode.WRONG_DTYPE),
    ],
)
def test_update_that_is_not_what_was_asked_for_is_refused(changes: dict[str, Any], code: RefusalCode) -> None:
    like = tensors(0.0, 0.0, 0.0, 0.0)

    with pytest.raises(RefusalError) as caught:
        admit_update(replace(answer(like), **changes), DISPATCH, MEMBER, like)

    assert caught.value.code is code


@pytest.mark.parametrize("kind", [Readiness, Discarded])
def test_word_about_another_task_is_refused(kind: type[Readiness | Discarded]) -> None:
    require_readiness(kind(hospital_id="north", model_version=4), DISPATCH)

    with pytest.raises(RefusalError, match="Expected model version 4, found 3"):
        require_readiness(kind(hospital_id="north", model_version=3), DISPATCH)
    with pytest.raises(RefusalError, match="Expected an answer of 'north', found 'south'"):
        require_readiness(kind(hospital_id="south", model_version=4), DISPATCH)


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (int(SiteErrorCode.BUDGET_EXHAUSTED), RefusalCode.BUDGET_EXHAUSTED, "budget-exhausted"),
        (int(SiteErrorCode.NOTHING_PENDING), RefusalCode.SITE_ERROR, "site-error:nothing-pending"),
        (99, RefusalCode.NODE_LOST, "node-lost"),
        (5, RefusalCode.NODE_LOST, "node-lost"),
        (2, RefusalCode.SITE_ERROR, "site-error"),
        (100_000, RefusalCode.SITE_ERROR, "site-error"),
    ],
)
def test_error_is_told_by_its_code(number: int, code: RefusalCode, reason: str) -> None:
    found = refusal_of(number)

    assert (found.code, found.reason) == (code, reason)
