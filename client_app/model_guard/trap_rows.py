"""Trap weights: rows whose negative half outweighs the positive one by the same little in every unit."""

from __future__ import annotations

import torch

from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer

_WINDOW = 0.1
_LEAST_GROUP = 16
_GROUP_SHARE = 0.2
_LEAST_INPUTS = 16
_LEAST_TO_COUNT = 64


def find_trap_rows(layer: HiddenLayer) -> Finding | None:
    """Return a finding where the sums of many rows, relative to their norms, or their negative weights are as many.

    Trap weights (arXiv 2112.02918, section 5) draw half of a row negative and make the other half of the same
    magnitudes, scaled down a little: the sum of such a row is no longer chance. The sum of an ordinary row over its
    norm has a deviation of about 1 between units, and training widens it; a fifth of all units within 0.1 is none.
    Where the two halves are drawn apart, sums differ, but each row has exactly as many negative weights as every other;
    of ordinary rows with n weights a share of about 0.8 / sqrt(n) has the most frequent number.

    Args:
        layer: of less than 16 inputs nothing is said, and of less than 64 no signs are counted.
    """
    if layer.weight.shape[1] < _LEAST_INPUTS:
        return None
    return _find_equal_sums(layer) or _find_equal_halves(layer)


def _find_equal_halves(layer: HiddenLayer) -> Finding | None:
    units, inputs = layer.weight.shape
    counts = (layer.weight < 0).sum(dim=1)
    # Rows that training has drawn to one side are no halves, and may all be alike.
    halves = counts[(counts > inputs / 4) & (counts < 3 * inputs / 4)]
    together = int(halves.bincount().max()) if len(halves) else 0
    limit = max(_LEAST_GROUP, round(_GROUP_SHARE * units))
    if inputs < _LEAST_TO_COUNT or together < limit:
        return None
    return Finding(
        check="trap-rows",
        tensor=f"{layer.name}.weight",
        found=f"{together} of {units} rows with the same number of negative weights",
        expected=f"fewer than {limit}",
    )


def _find_equal_sums(layer: HiddenLayer) -> Finding | None:
    norms = layer.weight.norm(dim=1)
    sums = (layer.weight.sum(dim=1) / norms)[norms > 0].sort().values
    units = len(layer.bias)
    ends = torch.searchsorted(sums, sums + _WINDOW, right=True)
    together = int((ends - torch.arange(len(sums))).max()) if len(sums) else 0
    limit = max(_LEAST_GROUP, round(_GROUP_SHARE * units))
    if together < limit:
        return None
    return Finding(
        check="trap-rows",
        tensor=f"{layer.name}.weight",
        found=f"{together} of {units} rows with sums within {_WINDOW:g} norms of each other",
        expected=f"fewer than {limit}",
    )
