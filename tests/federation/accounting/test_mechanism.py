"""A mechanism says in words what it protects, and refuses to say what is not so."""

from __future__ import annotations

import math
from typing import Any

import pytest

from federation.accounting.events import Relation, Unit
from federation.accounting.mechanism import Mechanism
from federation.errors import PrivacyError

DP_SGD: dict[str, Any] = {
    "name": "dp-sgd", "relation": Relation.ADD_REMOVE, "unit": Unit.RECORD, "clip_norm": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words", "sensitivity"),
    [
        ({}, "record-level, add-remove, L2 sensitivity C = 1", 1.0),
        ({"unit": Unit.PATIENT, "clip_norm": 0.25}, "patient-level, add-remove, L2 sensitivity C = 0.25", 0.25),
        (
            {"name": "update-gaussian", "relation": Relation.ZERO_OUT, "unit": Unit.UPDATE, "clip_norm": 1.5},
            "update-level, zero-out, L2 sensitivity C = 1.5",
            1.5,
        ),
        (
            {"name": "update-gaussian", "relation": Relation.REPLACE_ONE, "unit": Unit.UPDATE, "clip_norm": 1.5},
            "update-level, replace-one, L2 sensitivity 2C = 3",
            3.0,
        ),
        ({"name": "none", "clip_norm": 0.0}, "no differential privacy", math.inf),
    ],
)
def test_mechanism_is_put_in_words(changes: dict[str, Any], words: str, sensitivity: float) -> None:
    mechanism = Mechanism(**DP_SGD | changes)

    assert (mechanism.in_words(), mechanism.sensitivity) == (words, sensitivity)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "masking"}, "Expected a mechanism named none, dp-sgd, update-gaussian, metrics, found 'masking'"),
        ({"clip_norm": 0.0}, r"Expected a finite clip_norm=0\.0 > 0"),
        ({"clip_norm": math.nan}, r"Expected a finite clip_norm=nan > 0"),
        ({"relation": Relation.REPLACE_ONE}, "found replace-one: no account counts it"),
        ({"unit": Unit.UPDATE}, "Expected dp-sgd to protect records or patients, found updates"),
        ({"name": "update-gaussian"}, "Expected update-gaussian to protect updates, found records"),
    ],
)
def test_mechanism_that_would_promise_too_much_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        Mechanism(**DP_SGD | changes)
