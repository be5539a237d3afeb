"""Rows along one direction are found by their thresholds, under noise that hides both from the other checks."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from client_app.model_guard.collinear_rows import find_collinear_rows
from client_app.model_guard.common_direction import find_common_direction
from client_app.model_guard.layers import HiddenLayer
from client_app.model_guard.shared_measurement import find_shared_measurement
from tests.client_app.model_guard.made_up_models import INPUTS, UNITS, draw, ordinary_layer, with_rows

# Inputs that vary by their mean far more than along a direction that leaves the mean out, as smooth images do.
SMOOTH = draw(256, 1, seed=11) + 0.3 * draw(256, INPUTS, seed=12)
DIRECTION = functional.normalize(draw(INPUTS, seed=17) - draw(INPUTS, seed=17).mean(), dim=0)


def layer_of(
    count: int, *, width: float, noise: float = 0.3, middle: float = 0.0, flipped: bool = False
) -> HiddenLayer:
    """Return a layer of which `count` units measure a random direction, with thresholds `width` deviations wide."""
    rows = DIRECTION + noise * draw(count, INPUTS, seed=13) / INPUTS**0.5
    signs = torch.ones(count)
    if flipped:
        signs[::2] = -1
    measured = SMOOTH @ DIRECTION
    levels = measured.mean() + measured.std() * (middle + torch.linspace(-width / 2, width / 2, count))
    places = torch.randperm(UNITS, generator=torch.Generator().manual_seed(3))[:count]
    bias = ordinary_layer().bias.clone()
    bias[places] = -signs * levels
    return ordinary_layer(weight=with_rows(count, rows * signs[:, None]), bias=bias, inputs=SMOOTH)


def test_ordinary_units_are_no_finding() -> None:
    assert find_common_direction(ordinary_layer(inputs=SMOOTH)) is None


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("count", [12, 50, 200])
def test_blurred_ladder_is_found_where_the_other_checks_see_nothing(count: int, flipped: bool) -> None:
    layer = layer_of(count, width=2.0, flipped=flipped)

    finding = find_common_direction(layer)

    assert find_collinear_rows(layer) is None
    assert find_shared_measurement(layer) is None
    assert finding is not None
    assert finding.found.startswith(f"{count} of {UNITS} units")


@pytest.mark.parametrize(
    ("count", "width", "middle"), [(11, 2.0, 0.0), (100, 0.3, 0.0), (100, 2.0, 9.0)],
    ids=["too few", "switching at once", "where no image comes"],
)  # fmt: skip
def test_what_training_gives_is_no_finding(count: int, width: float, middle: float) -> None:
    assert find_common_direction(layer_of(count, width=width, middle=middle)) is None


def test_inputs_that_do_not_vary_are_no_finding() -> None:
    layer = layer_of(100, width=2.0)
    still = ordinary_layer(weight=layer.weight, bias=layer.bias, inputs=torch.ones(256, INPUTS))

    assert find_common_direction(still) is None


def test_layer_of_few_inputs_is_not_judged() -> None:
    layer = layer_of(100, width=2.0)
    narrow = ordinary_layer(weight=layer.weight[:, :15], bias=layer.bias, inputs=layer.inputs[:, :15])

    assert find_common_direction(narrow) is None
