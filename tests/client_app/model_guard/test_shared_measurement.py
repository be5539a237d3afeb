"""Units with one measurement and thresholds of their own are found under noise; units that switch at once are not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from client_app.model_guard.collinear_rows import find_collinear_rows
from client_app.model_guard.layers import HiddenLayer
from client_app.model_guard.shared_measurement import find_shared_measurement
from tests.client_app.model_guard.made_up_models import INPUTS, UNITS, draw, ordinary_layer, with_rows

# Inputs vary by their mean ten times as far as by anything else, as smooth images do.
SMOOTH = draw(256, 1, seed=11) + 0.1 * draw(256, INPUTS, seed=12)


def layer_of(count: int, *, width: float, noise: float = 0.5, middle: float = 0.0) -> HiddenLayer:
    """Return a layer of which `count` units measure the mean, with thresholds `width` deviations wide."""
    rows = torch.ones(INPUTS) / INPUTS + noise * draw(count, INPUTS, seed=13) / INPUTS
    places = torch.randperm(UNITS, generator=torch.Generator().manual_seed(3))[:count]
    bias = ordinary_layer().bias.clone()
    bias[places] = -middle - torch.linspace(-width / 2, width / 2, count)
    return ordinary_layer(weight=with_rows(count, rows), bias=bias, inputs=SMOOTH)


def test_ordinary_units_are_no_finding() -> None:
    assert find_shared_measurement(ordinary_layer(inputs=SMOOTH)) is None


@pytest.mark.parametrize("count", [12, 100, 200])
def test_ladder_is_found_where_noise_hides_the_direction_of_its_rows(count: int) -> None:
    layer = layer_of(count, width=2.0)

    finding = find_shared_measurement(layer)

    assert find_collinear_rows(layer) is None
    assert finding is not None
    assert finding.found.startswith(f"{count} of {UNITS} units")


@pytest.mark.parametrize(
    ("count", "width", "middle"), [(11, 2.0, 0.0), (100, 0.5, 0.0), (100, 2.0, 9.0)],
    ids=["too few", "switching at once", "never switching"],
)  # fmt: skip
def test_what_training_gives_is_no_finding(count: int, width: float, middle: float) -> None:
    assert find_shared_measurement(layer_of(count, width=width, middle=middle)) is None


def test_second_group_is_found_behind_a_larger_one() -> None:
    layer = layer_of(150, width=0.1)
    other = torch.cos(torch.arange(INPUTS) * 0.3)
    places = torch.randperm(UNITS, generator=torch.Generator().manual_seed(3))[150:]
    weight, bias = layer.weight.clone(), layer.bias.clone()
    weight[places] = other / INPUTS
    measured = (layer.inputs @ other / INPUTS).std()
    bias[places] = measured * torch.linspace(-1.5, 1.5, len(places))

    finding = find_shared_measurement(ordinary_layer(weight=weight, bias=bias, inputs=layer.inputs))

    assert finding is not None
    assert finding.found.startswith("50 of")


def test_units_that_respond_alike_by_unrelated_rows_are_no_finding() -> None:
    """Inputs that vary in one direction only make everything respond alike; the rows are ordinary."""
    inputs = draw(256, 1, seed=14) * draw(INPUTS, seed=15)
    bias: Tensor = draw(UNITS, seed=16)

    assert find_shared_measurement(ordinary_layer(inputs=inputs, bias=bias)) is None
