"""Trap weights: rows whose negative half outweighs the positive one by the same little in every unit."""

from __future__ import annotations

import torch

from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer

_WINDOW = 0.1
_LEAST_GROUP = 16
_GROUP_SHARE = 0.2
_LEAST_INPUTS = 16


def find_trap_rows(layer: HiddenLayer) -> Finding | None:
    """Return a finding where the sums of many rows, relative to their norms, are all the same.

    Trap weights (arXiv 2112.02918, section 5) draw half of a row negative and make the other half of the same
    magnitudes, scaled down a little: the sum of such a row is no longer chance. The sum of an ordinary row over its
    norm has a deviation of about 1 between units, and training widens it; a fifth of all units within 0.1 is none.

    Args:
        layer: of less than 16 inputs nothing is said.
    """
    if layer.weight.shape[1] < _LEAST_INPUTS:
        return None
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
