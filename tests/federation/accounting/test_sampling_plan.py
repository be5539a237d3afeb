"""How often a unit is sampled and in how many steps follows from its number, the batch size and the epochs alone."""

from __future__ import annotations

import pytest

from federation.accounting.sampling_plan import plan_sampling
from federation.errors import PrivacyError


@pytest.mark.parametrize(
    ("units", "batch_size", "epochs", "probability", "steps"),
    [
        (6400, 64, 1, 0.01, 100),
        (6400, 64, 3, 0.01, 300),
        (100, 64, 1, 0.64, 2),
        (95, 64, 2, 64 / 95, 2),
        (64, 64, 1, 1.0, 1),
        (10, 64, 4, 1.0, 4),
        (1, 1, 5, 1.0, 5),
    ],
)
def test_plan_follows_from_units_batch_size_and_epochs(
    units: int, batch_size: int, epochs: int, probability: float, steps: int
) -> None:
    found = plan_sampling(units, batch_size=batch_size, local_epochs=epochs)

    assert found[0] == pytest.approx(probability)
    assert found[1] == steps


@pytest.mark.parametrize("wrong", [{"units": 0}, {"batch_size": 0}, {"local_epochs": -1}])
def test_impossible_plan_is_refused(wrong: dict[str, int]) -> None:
    values = {"units": 10, "batch_size": 5, "local_epochs": 1} | wrong

    with pytest.raises(PrivacyError, match=">= 1"):
        plan_sampling(values["units"], batch_size=values["batch_size"], local_epochs=values["local_epochs"])
