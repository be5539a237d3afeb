"""Columns that are the same by value are found; columns of one direction, as two classes give, are not."""

from __future__ import annotations

import pytest
import torch

from client_app.model_guard.repeated_columns import find_repeated_columns
from tests.client_app.model_guard.made_up_models import CLASSES, UNITS, draw, ordinary_layer


def columns_with(count: int, *, noise: float = 0.0, classes: int = CLASSES) -> torch.Tensor:
    columns = draw(classes, UNITS, seed=2)
    places = torch.randperm(UNITS, generator=torch.Generator().manual_seed(3))[:count]
    columns[:, places] = draw(classes, 1, seed=4) + noise * draw(classes, count, seed=5)
    return columns


@pytest.mark.parametrize("noise", [0.0, 0.001])
@pytest.mark.parametrize("classes", [2, CLASSES])
@pytest.mark.parametrize(("count", "is_found"), [(200, True), (8, True), (7, False)])
def test_repeated_columns_are_found_from_eight_on(count: int, noise: float, classes: int, is_found: bool) -> None:
    finding = find_repeated_columns(ordinary_layer(following=columns_with(count, noise=noise, classes=classes)))

    assert (finding is not None) is is_found


def test_opposite_columns_of_different_lengths_are_no_finding() -> None:
    """Two classes: the gradient of one logit is minus that of the other."""
    lengths = draw(1, UNITS, seed=6).abs() + 0.01
    signs = draw(1, UNITS, seed=7).sign()

    assert find_repeated_columns(ordinary_layer(following=torch.tensor([[1.0], [-1.0]]) * lengths * signs)) is None


def test_columns_that_decay_has_made_small_are_compared_by_their_own_length() -> None:
    columns = draw(CLASSES, UNITS, seed=2)
    columns[:, :60] *= 1e-6

    assert find_repeated_columns(ordinary_layer(following=columns)) is None


def test_columns_of_zeros_and_single_outputs_are_no_finding() -> None:
    assert find_repeated_columns(ordinary_layer(following=torch.zeros(CLASSES, UNITS))) is None
    assert find_repeated_columns(ordinary_layer(following=torch.ones(1, UNITS))) is None
