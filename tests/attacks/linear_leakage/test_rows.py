"""A row's candidate is the one image that it saw, once; a place is a row that sees one image alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from attacks.linear_leakage.read_out import Moved
from attacks.linear_leakage.rows import place_alone, read_rows


def moved(weight: list[list[float]], bias: list[float]) -> Moved:
    return Moved(weight=np.array(weight), bias=np.array(bias))


def test_row_gives_weight_over_bias_whatever_the_multiple_and_the_sign() -> None:
    found = read_rows(moved([[0.2, 0.4], [-3.0, -1.0]], [0.4, -4.0]))

    assert found == pytest.approx(np.array([[0.5, 1.0], [0.75, 0.25]]))


def test_row_without_gradient_gives_nothing() -> None:
    found = read_rows(moved([[0.2, 0.4], [0.0, 0.0], [1e-9, 1e-9]], [0.4, 0.0, 1e-9]))

    assert np.isnan(found[1:]).all()
    assert np.isfinite(found[0]).all()


def test_nothing_at_all_gives_nothing() -> None:
    assert np.isnan(read_rows(moved([[0.0, 0.0]], [0.0]))).all()


def test_repeats_are_dropped_and_the_first_row_keeps_the_strongest() -> None:
    found = read_rows(moved([[0.5001, 1.0], [9.0, 1.0], [5.0, 10.0]], [1.0, 9.0, 10.0]))

    assert found[0].tolist() == [0.5, 1.0]
    assert found[1] == pytest.approx([1.0, 1 / 9])
    assert np.isnan(found[2]).all()


def test_place_is_the_first_row_in_which_an_image_is_alone() -> None:
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]))
        layer.bias.fill_(-0.5)
    images = torch.eye(3).view(3, 1, 1, 3)

    assert place_alone(layer, images).tolist() == [-1, 1, -1]
    assert place_alone(layer, images[:1]).tolist() == [0]
