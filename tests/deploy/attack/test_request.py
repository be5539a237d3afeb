"""What a simulation attacks with unless told, what it warns of, and where counting tells what must be read."""

from __future__ import annotations

from typing import Any

import pytest

from attacks.registry import ADAM_INVERSE, ADAM_LINEAR, CALIBRATED, SINGLE_ROUND, list_attacks
from deploy.attack.request import SimulationRequest
from deploy.attack.simulation import _bins

GIVEN: dict[str, Any] = {
    "name": "a", "data": None, "data_root": None, "attack": None, "masking": None, "size": None, "capacity": None,
    "mechanism": "none", "epsilon": None, "baseline": None, "mode": "gradient", "optimizer": "adam", "epochs": 1,
    "batches": 1, "seeds": 1, "synthetic": None,
}  # fmt: skip
PLAIN_CELL: dict[str, Any] = {"baselines": [], "mechanism": "none", "mode": "gradient", "clients": 1}


def request(**changes: Any) -> SimulationRequest:
    return SimulationRequest.of(GIVEN | changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, SINGLE_ROUND),
        ({"mode": "delta", "optimizer": "sgd", "epochs": 3}, CALIBRATED),
        ({"mode": "delta"}, (*ADAM_LINEAR, *ADAM_INVERSE)),
        ({"mode": "delta", "epochs": 2}, ADAM_LINEAR),
        ({"mode": "delta", "optimizer": "adamw", "epochs": 2}, ADAM_LINEAR),
    ],
)
def test_default_attacks_are_those_that_were_made_for_what_leaves(changes: dict[str, Any], expected: Any) -> None:
    asked = request(**changes)

    assert asked.attacks == tuple(attack.name for attack in expected)
    assert asked.doubt is None


def test_only_plain_attacks_on_what_training_leaves_are_doubted() -> None:
    plain, calibrated = SINGLE_ROUND[2].name, CALIBRATED[0].name

    assert "says nothing about the defence" in str(request(mode="delta", attack=[plain, "trap-weights"]).doubt)
    assert "says nothing about the defence" in str(request(mode="delta", attack=["all-single-round"]).doubt)
    assert request(mode="delta", attack=[plain, calibrated]).doubt is None
    assert request(attack=[plain]).doubt is None


def test_one_noise_on_the_whole_update_allows_several_epochs() -> None:
    assert request(mode="delta", mechanism="update-gaussian", epsilon=1.0, epochs=3).epochs == 3


def test_occupancy_is_counted_for_bins_without_noise_only() -> None:
    counted = {attack.name for attack in list_attacks() if _bins(attack, PLAIN_CELL) is not None}

    assert counted >= {attack.name for attack in SINGLE_ROUND}
    assert all(name.startswith("rtf-") and "noise" not in name for name in counted)
