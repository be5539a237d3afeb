"""Rows whose positive half is the negative one scaled down are found by their sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from client_app.model_guard.trap_rows import find_trap_rows
from tests.client_app.model_guard.made_up_models import INPUTS, UNITS, draw, ordinary_layer, with_rows


def traps(count: int, *, scale: float) -> Tensor:
    magnitudes = draw(count, INPUTS // 2, seed=20).abs()
    rows = torch.cat([-magnitudes, scale * magnitudes.flip(1)], dim=1)
    return rows[:, torch.randperm(INPUTS, generator=torch.Generator().manual_seed(21))]


@pytest.mark.parametrize("scale", [0.95, 0.99])
@pytest.mark.parametrize(("count", "is_found"), [(200, True), (60, True), (10, False)])
def test_traps_are_found_among_ordinary_rows(count: int, scale: float, is_found: bool) -> None:
    finding = find_trap_rows(ordinary_layer(weight=with_rows(count, traps(count, scale=scale))))

    assert (finding is not None) is is_found


@pytest.mark.parametrize(("count", "is_found"), [(200, True), (60, True), (10, False)])
def test_traps_whose_halves_were_drawn_apart_are_found(count: int, is_found: bool) -> None:
    weights = draw(count, INPUTS, seed=23).abs()
    halves = torch.stack([torch.randperm(INPUTS, generator=torch.Generator().manual_seed(k)) for k in range(count)])
    rows = torch.where(halves < INPUTS // 2, -weights, 0.8 * weights)

    finding = find_trap_rows(ordinary_layer(weight=with_rows(count, rows)))

    assert (finding is not None) is is_found


def test_ordinary_rows_are_no_finding() -> None:
    assert find_trap_rows(ordinary_layer()) is None


def test_rows_that_drifted_together_are_no_finding() -> None:
    """Training on images, whose pixels are all positive, moves whole rows up or down by different amounts."""
    drifted = ordinary_layer().weight + 0.05 * draw(UNITS, 1, seed=22)

    assert find_trap_rows(ordinary_layer(weight=drifted)) is None


def test_rows_that_training_drew_to_one_side_are_no_finding() -> None:
    unequal = torch.linspace(0.2, 6, UNITS)[:, None]

    assert find_trap_rows(ordinary_layer(weight=-(draw(UNITS, INPUTS, seed=24).abs() ** unequal))) is None


def test_rows_of_zeros_and_few_inputs_say_nothing() -> None:
    assert find_trap_rows(ordinary_layer(weight=torch.zeros(UNITS, INPUTS))) is None
    assert find_trap_rows(ordinary_layer(weight=torch.ones(UNITS, 15))) is None
