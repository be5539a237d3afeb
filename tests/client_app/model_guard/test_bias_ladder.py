"""Quantiles of any distribution are found in any order; values that chance or training gives are not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from client_app.model_guard.bias_ladder import find_bias_ladder
from tests.client_app.model_guard.made_up_models import UNITS, draw, ordinary_layer

STEPS = torch.linspace(0.001, 0.999, UNITS, dtype=torch.float64)
LADDERS: dict[str, Tensor] = {
    "normal": torch.special.ndtri(STEPS),
    "even": STEPS,
    "laplace": (2 * STEPS - 1).sign() * -torch.log(1 - (2 * STEPS - 1).abs()),
}


def shuffled(values: Tensor, seed: int = 0) -> Tensor:
    return values[torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))].float()


@pytest.mark.parametrize("name", LADDERS)
@pytest.mark.parametrize("scale", [-0.01, 5.0])
def test_ladder_is_found_in_any_order_and_at_any_scale(name: str, scale: float) -> None:
    finding = find_bias_ladder(ordinary_layer(bias=scale * shuffled(LADDERS[name])))

    assert finding is not None
    assert (finding.check, finding.tensor) == ("bias-ladder", "hidden.bias")


def test_ladder_on_three_quarters_of_the_units_is_found() -> None:
    bias = LADDERS["normal"].clone()
    bias[::4] = bias[::4] + 0.3 * draw(len(bias[::4]))

    assert find_bias_ladder(ordinary_layer(bias=shuffled(bias))) is not None


@pytest.mark.parametrize("seed", range(20))
def test_values_by_chance_are_no_finding(seed: int) -> None:
    normal, even = draw(UNITS, seed=seed), torch.rand(UNITS, generator=torch.Generator().manual_seed(seed))

    assert find_bias_ladder(ordinary_layer(bias=normal)) is None
    assert find_bias_ladder(ordinary_layer(bias=even)) is None


def test_equal_biases_are_no_finding() -> None:
    assert find_bias_ladder(ordinary_layer(bias=torch.zeros(UNITS))) is None


@pytest.mark.parametrize(("units", "is_found"), [(31, False), (32, True)])
def test_few_units_say_nothing(units: int, is_found: bool) -> None:
    assert (find_bias_ladder(ordinary_layer(bias=torch.linspace(0, 1, units))) is not None) is is_found
