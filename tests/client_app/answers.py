"""What a hospital answered, opened, and the settings of two mechanisms whose noise is set by hand."""

from __future__ import annotations

from typing import Any

import torch

from federation.parameters import Parameters
from federation.records.answers import HospitalScores, ModelUpdate, decode_hospital_scores, decode_model_update
from federation.records.declarations import Declaration
from tests.client_app.clinic import Clinic

BY_HAND = {"privacy__noise_multiplier": 24.22}
UPDATE = {"privacy__mechanism": "update-gaussian", **BY_HAND}
DP_SGD = {"privacy__mechanism": "dp-sgd", "privacy__account": "rdp", **BY_HAND}
MECHANISMS = {"update-gaussian": UPDATE, "dp-sgd": DP_SGD}


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
