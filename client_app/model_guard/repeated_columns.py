"""Columns of the layer behind that are all the same, so that differences of neighbouring gradients are exact."""

from __future__ import annotations

import torch

from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer

_TOLERANCE = 0.02
_LEAST_GROUP = 8
_GROUP_SHARE = 0.02


def find_repeated_columns(layer: HiddenLayer) -> Finding | None:
    """Return a finding where many units reach the next layer by the same weights.

    An imprint needs the gradient that reaches its units to be the same for all (arXiv 2110.13057, section 3;
    arXiv 2311.05808 sets all weights to 1/k). Units are compared by value and not by direction: with two classes,
    training makes the columns opposites of each other's multiples.

    Args:
        layer: with the columns behind it; behind a single output, which gives a column one value, nothing is said.
    """
    columns = layer.following.T
    if columns.shape[1] < 2:
        return None
    norms = columns.norm(dim=1)
    near = torch.cdist(columns, columns) < _TOLERANCE * torch.minimum(norms[:, None], norms[None])
    repeated = int(near.fill_diagonal_(False).sum(dim=1).max()) + 1
    limit = max(_LEAST_GROUP, round(_GROUP_SHARE * len(columns)))
    if repeated < limit:
        return None
    return Finding(
        check="repeated-columns",
        tensor=f"{layer.name}.weight",
        found=f"{repeated} of {len(columns)} units with the same column in the next layer",
        expected=f"fewer than {limit}",
    )
