"""Which private image a synthetic one is compared with; the paper leaves it open, so it is stated here.

Only images of the same class are compared, in the features of a frozen extractor, by squared Euclidean distance.
"""

from __future__ import annotations

from typing import Literal

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

Pairing = Literal["nearest", "optimal"]
_GROUP = 64


def pair(candidates: Tensor, references: Tensor, pairing: Pairing) -> Tensor:
    """Return the squared distance of each candidate to the reference that it is paired with.

    "nearest" pairs each with the nearest reference. "optimal" gives each a reference of its own so that the sum is
    least (the Hungarian algorithm), which a generator that repeats one good image does not pass. Distances of such
    pairs grow with the number of candidates, so candidates are paired in groups of 64 (fewer where there are fewer
    references), in their order. Both are deterministic; equal distances go to the lower index.

    Args:
        candidates: float32, shape (N, F).
        references: float32, shape (R, F), at least one.
        pairing: how.

    Returns:
        float64, shape (N,).
    """
    if pairing == "nearest":
        parts = [_distances(part, references).min(dim=1).values for part in candidates.split(1024)]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
    costs = [_assign(part, references) for part in candidates.split(min(_GROUP, len(references)))]
    return torch.cat(costs) if costs else torch.zeros(0, dtype=torch.float64)


def _assign(candidates: Tensor, references: Tensor) -> Tensor:
    distances = _distances(candidates, references)
    rows, columns = linear_sum_assignment(distances.numpy())
    return distances[torch.from_numpy(rows), torch.from_numpy(columns)]


def _distances(left: Tensor, right: Tensor) -> Tensor:
    """Return squared distances, float64, shape (N, R)."""
    return torch.cdist(left.double(), right.double()).square()
