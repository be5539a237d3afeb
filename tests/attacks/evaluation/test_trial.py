"""A trial that would be measured under a wrong name is refused."""

from __future__ import annotations

from typing import Any

import pytest

from attacks.defences.pruning import Pruning
from attacks.evaluation.trial import Trial
from attacks.victim import Protection
from federation.config import PrivacyConfig
from federation.errors import DataError

_PRIVATE = Protection(privacy=PrivacyConfig(mechanism="dp-sgd"), noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"synthetic": 8}, "masking.mode='none'"),
        ({"protection": Protection(mode="joint")}, "synthetic=0"),
        ({"protection": _PRIVATE}, "mode='delta' for dp-sgd"),
        ({"protection": Protection(baselines=(Pruning(share=0.8),)), "mode": "delta"}, "mode='gradient'"),
        ({"batches": 0}, "at least one"),
        ({"seeds": ()}, "at least one"),
    ],
)
def test_trial_whose_numbers_would_mislead_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Trial(**settings)


def test_usual_trials_are_taken() -> None:
    assert Trial().batches * len(Trial().seeds) == 24
    assert Trial(protection=Protection(mode="joint"), synthetic=8).synthetic == 8
    assert Trial(mode="delta", protection=_PRIVATE).mode == "delta"
