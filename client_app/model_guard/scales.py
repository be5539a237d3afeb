"""Weights far outside of what initialization and training give, and biases that outweigh their rows."""

from __future__ import annotations

import torch
from torch import Tensor

from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer

_LARGEST_NORM = 1000.0
_LARGEST_RATIO = 5.0
_LEAST_INPUTS = 16


def find_large_weights(name: str, weight: Tensor) -> Finding | None:
    """Return a finding where a unit's or filter's weights have a norm above 1000.

    Fresh ones have a norm of 0.58, whatever the number of inputs, and trained ones of a few. Gains of that size are how
    an attacker keeps thresholds in place while a hospital trains for several steps (arXiv 2303.12233).

    Args:
        name: of the parameter.
        weight: one unit or filter per entry of the first dimension.
    """
    largest = float(weight.flatten(1).norm(dim=1).max())
    if largest <= _LARGEST_NORM:
        return None
    return Finding(
        check="large-weights", tensor=name, found=f"a norm of {largest:.3g}", expected=f"at most {_LARGEST_NORM:g}"
    )


def find_large_biases(layer: HiddenLayer) -> Finding | None:
    """Return a finding where a unit's bias is above five times the norm of its row.

    A threshold on the mean of all pixels needs that: the mean is a short row, and what it measures is far from zero.

    Args:
        layer: of less than 16 inputs nothing is said.
    """
    if layer.weight.shape[1] < _LEAST_INPUTS:
        return None
    large = int(torch.count_nonzero(layer.bias.abs() > _LARGEST_RATIO * layer.weight.norm(dim=1)))
    if not large:
        return None
    return Finding(
        check="large-biases",
        tensor=f"{layer.name}.bias",
        found=f"{large} of {len(layer.bias)} above {_LARGEST_RATIO:g} times the norm of their rows",
        expected="none",
    )
