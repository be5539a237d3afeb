"""Gains and thresholds that neither initialization nor training gives."""

from __future__ import annotations

import pytest
import torch

from client_app.model_guard.scales import find_large_biases, find_large_weights
from tests.client_app.model_guard.made_up_models import INPUTS, UNITS, draw, ordinary_layer


@pytest.mark.parametrize(("norm", "is_found"), [(1001.0, True), (999.0, False)])
@pytest.mark.parametrize("shape", [(8, 20), (8, 4, 3, 3)])
def test_one_row_or_filter_above_the_largest_norm_is_found(shape: tuple[int, ...], norm: float, is_found: bool) -> None:
    weight = draw(*shape)
    weight[3] *= norm / weight[3].norm()

    assert (find_large_weights("output.weight", weight) is not None) is is_found


@pytest.mark.parametrize(("ratio", "is_found"), [(-5.1, True), (4.9, False)])
def test_bias_that_outweighs_its_row_is_found(ratio: float, is_found: bool) -> None:
    layer = ordinary_layer()
    bias = layer.bias.clone()
    bias[7] = ratio * layer.weight[7].norm()

    assert (find_large_biases(ordinary_layer(bias=bias)) is not None) is is_found


def test_few_inputs_say_nothing_about_biases() -> None:
    few = {"weight": torch.full((UNITS, 15), 0.01), "bias": torch.ones(UNITS)}

    assert find_large_biases(ordinary_layer(**few)) is None
    assert find_large_biases(ordinary_layer(**few | {"weight": torch.full((UNITS, INPUTS), 0.01)})) is not None
