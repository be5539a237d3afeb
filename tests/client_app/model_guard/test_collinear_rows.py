"""Rows of one direction are found whatever the direction, their order, their scales and their signs."""

from __future__ import annotations

import pytest
import torch

from client_app.model_guard.collinear_rows import find_collinear_rows
from tests.client_app.model_guard.made_up_models import CLASSES, INPUTS, draw, ordinary_layer, with_rows

DIRECTIONS = {
    "mean": torch.ones(INPUTS),
    "cosine": torch.cos(torch.arange(INPUTS) * 0.3),
    "random": draw(INPUTS, seed=9),
}


def test_ordinary_rows_are_no_finding() -> None:
    assert find_collinear_rows(ordinary_layer()) is None


@pytest.mark.parametrize("name", DIRECTIONS)
@pytest.mark.parametrize("count", [2, 50])
def test_rows_of_one_direction_are_found_among_ordinary_ones(name: str, count: int) -> None:
    scales = draw(count, 1, seed=4)

    finding = find_collinear_rows(ordinary_layer(weight=with_rows(count, scales * DIRECTIONS[name])))

    assert finding is not None
    assert (finding.check, finding.tensor) == ("collinear-rows", "hidden.weight")
    assert finding.found.startswith(f"{count} with |cosine| > 0.999")


@pytest.mark.parametrize(("count", "is_found"), [(8, True), (7, False)])
def test_rows_that_noise_draws_apart_are_found_from_eight_on(count: int, is_found: bool) -> None:
    noise = 0.08 * draw(count, INPUTS, seed=5)

    finding = find_collinear_rows(ordinary_layer(weight=with_rows(count, torch.ones(INPUTS) + noise)))

    assert (finding is not None) is is_found


def test_small_share_of_a_wide_layer_is_no_group() -> None:
    wide = draw(1000, INPUTS, seed=6)
    wide[:19] = torch.ones(INPUTS) + 0.08 * draw(19, INPUTS, seed=7)
    layer = ordinary_layer(weight=wide, bias=torch.zeros(1000), following=draw(CLASSES, 1000))

    assert find_collinear_rows(layer) is None

    wide[19] = wide[0] + 0.08 * draw(INPUTS, seed=8)
    assert find_collinear_rows(layer) is not None


def test_few_inputs_say_nothing() -> None:
    layer = ordinary_layer(weight=draw(200, 1), inputs=draw(256, 1))

    assert find_collinear_rows(layer) is None
