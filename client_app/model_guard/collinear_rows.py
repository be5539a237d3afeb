"""Units that all measure one thing: the rows of an imprint are one direction, whichever it is, at any scale."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer

_PAIR = 0.999
_GROUP = 0.98
_LEAST_GROUP = 8
_GROUP_SHARE = 0.02
_LEAST_INPUTS = 16


def find_collinear_rows(layer: HiddenLayer) -> Finding | None:
    """Return a finding where two rows have the same direction, or many nearly have.

    Robbing the Fed (arXiv 2110.13057, section 3) needs as many rows as it has bins, the attack on a single bin two.
    Opposite directions count as the same one. Cosines do not depend on the order of units or on their scales, and
    ordinary units beside crafted ones change nothing.

    Args:
        layer: whose rows are compared; of less than 16 inputs nothing is said.
    """
    if layer.weight.shape[1] < _LEAST_INPUTS:
        return None
    cosines = pairwise_cosines(layer.weight).abs_()
    same, similar = largest_group(cosines, _PAIR), largest_group(cosines, _GROUP)
    limit = max(_LEAST_GROUP, round(_GROUP_SHARE * len(cosines)))
    if same < 2 and similar < limit:
        return None
    return Finding(
        check="collinear-rows",
        tensor=f"{layer.name}.weight",
        found=f"{same} with |cosine| > {_PAIR:g} and {similar} with |cosine| > {_GROUP:g} to one row",
        expected=f"none, and fewer than {limit}, of {len(cosines)} rows",
    )


def pairwise_cosines(rows: Tensor) -> Tensor:
    """Return the cosine of every two of `rows`, shape (K, K), with a diagonal of zeros."""
    unit = functional.normalize(rows, dim=1)
    return (unit @ unit.T).fill_diagonal_(0.0)


def largest_group(similarities: Tensor, threshold: float) -> int:
    """Return how many units are as similar as `threshold` to the unit that has most of such, itself included."""
    return int(torch.count_nonzero(similarities > threshold, dim=1).max()) + 1
