"""Biases at the quantiles of something: the steps of a ladder are as long as their neighbours, chance's are not."""

from __future__ import annotations

import math

import torch

from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer

_CHANCE = 2 * math.log(2) - 1
_DEVIATION = 0.3
_DEVIATIONS = 6
_LEAST = 0.5
_LEAST_UNITS = 32


def find_bias_ladder(layer: HiddenLayer) -> Finding | None:
    """Return a finding where the sorted biases are too regular to be drawn or trained.

    Of two neighbouring gaps between independent values, the shorter is 2 ln 2 - 1 = 0.39 of the longer on average,
    whatever smooth distribution they come from, with a deviation of 0.3 for one pair. Quantiles of any distribution
    (arXiv 2110.13057, section 3; arXiv 2311.05808) come near 1. Sorting makes it independent of the order of units.

    Args:
        layer: of less than 32 units nothing is said.
    """
    units = len(layer.bias)
    if units < _LEAST_UNITS:
        return None
    gaps = layer.bias.double().sort().values.diff()
    shorter, longer = torch.minimum(gaps[1:], gaps[:-1]), torch.maximum(gaps[1:], gaps[:-1])
    regularity = float((shorter / longer.clamp_min(torch.finfo(torch.float64).tiny)).mean())
    limit = max(_LEAST, _CHANCE + _DEVIATIONS * _DEVIATION / math.sqrt(units))
    if regularity <= limit:
        return None
    return Finding(
        check="bias-ladder",
        tensor=f"{layer.name}.bias",
        found=f"neighbouring gaps with a mean ratio of {regularity:.3f}",
        expected=f"about {_CHANCE:.2f}, at most {limit:.3f}",
    )
