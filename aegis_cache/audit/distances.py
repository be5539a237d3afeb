"""Exact nearest neighbours by Euclidean distance, in pieces that fit into memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from federation.errors import DataError

_BYTES = 128 * 2**20
# At least one more than asked for, because an image itself may be among the candidates.
_SPARE = 2
_SAFETY = 8.0
_UNIT = 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The nearest references of each query, nearest first; equal distances go to the lower index.

    Attributes:
        indices: int64, shape (N, k).
        distances: float64, shape (N, k), Euclidean.
    """

    indices: Tensor
    distances: Tensor


def find_nearest(queries: Tensor, references: Tensor, *, k: int = 1, exclude_self: bool = False) -> Neighbours:
    """Return the `k` nearest of `references` for each of `queries`.

    Candidates come from |q|^2 + |r|^2 - 2 qr in float32, around the references' mean. There, small distances drown in
    rounding, so the candidates' distances are computed again as differences in float64, and a query whose best
    left-out reference is not clearly farther, by the bound 8 sqrt(F) 2^-24 (|q| + |r|)^2 (Higham and Mary, SIAM J. Sci.
    Comput. 41, 2019, theorem 3.1: missed with probability below 1e-13 per sum), is compared with all in float64.

    Args:
        queries: float, shape (N, F).
        references: float, shape (R, F).
        k: neighbours per query, at least 1.
        exclude_self: the two sets are the same, and no image is its own neighbour.

    Raises:
        DataError: there are fewer than `k` neighbours, widths differ, or a value is not finite.
    """
    _check(queries, references, k + exclude_self)
    centre = references.double().mean(dim=0)
    near, far = (queries.double() - centre), (references.double() - centre)
    sizes = near.square().sum(dim=1), far.square().sum(dim=1)
    rough, lengths = (near.float(), far.float()), (sizes[0].float(), sizes[1].float())
    count = min(len(references), k + _SPARE)
    rows = max(1, _BYTES // (8 * max(len(references), 2 * count * references.shape[1])))
    indices, distances = [], []
    for start in range(0, len(queries), rows):
        part = slice(start, start + rows)
        squared = lengths[0][part, None] + lengths[1] - 2 * rough[0][part] @ rough[1].T
        own = torch.arange(start, start + len(squared)) if exclude_self else None
        found, chosen = _refine(squared, near[part], far, own, (k, count))
        reach = (sizes[0][part].sqrt() + sizes[1].max().sqrt()).square()
        slack = _SAFETY * math.sqrt(references.shape[1] + 2) * _UNIT * reach
        # The worst candidate bounds every reference that was left out.
        limit = squared.gather(1, chosen).max(dim=1).values if count < len(references) else torch.tensor(math.inf)
        unclear = torch.nonzero(limit - slack <= found.distances[:, -1].square()).flatten()
        _compare_with_all(found, unclear, near[part], far, own)
        indices.append(found.indices)
        distances.append(found.distances)
    if not indices:
        return Neighbours(indices=torch.zeros(0, k, dtype=torch.int64), distances=torch.zeros(0, k).double())
    return Neighbours(indices=torch.cat(indices), distances=torch.cat(distances))


def _check(queries: Tensor, references: Tensor, needed: int) -> None:
    if queries.ndim != 2 or references.ndim != 2 or queries.shape[1] != references.shape[1]:
        raise DataError(f"Expected two sets of vectors, found {tuple(queries.shape)} and {tuple(references.shape)}.")
    if len(references) < needed:
        raise DataError(f"Expected at least {needed} references, found {len(references)}.")
    if not (bool(queries.isfinite().all()) and bool(references.isfinite().all())):
        raise DataError("Expected finite features, found NaN or infinity.")


def _refine(
    squared: Tensor, near: Tensor, far: Tensor, own: Tensor | None, sizes: tuple[int, int]
) -> tuple[Neighbours, Tensor]:
    """Return the best k of the `count` candidates by exact distance, and all of the candidates' indices."""
    k, count = sizes
    chosen = squared.topk(count, dim=1, largest=False).indices.sort(dim=1).values
    exact = (near[:, None, :] - far[chosen]).square().sum(dim=2).sqrt()
    if own is not None:
        exact[chosen == own[:, None]] = math.inf
    best = exact.sort(dim=1, stable=True)
    order = best.indices[:, :k]
    return Neighbours(indices=chosen.gather(1, order), distances=best.values[:, :k].clone()), chosen


def _compare_with_all(found: Neighbours, unclear: Tensor, near: Tensor, far: Tensor, own: Tensor | None) -> None:
    """Replace the rows `unclear` of `found` by what a comparison with every reference in float64 gives."""
    k = found.indices.shape[1]
    for row in unclear.tolist():
        exact = (far - near[row]).square().sum(dim=1).sqrt()
        if own is not None:
            exact[own[row]] = math.inf
        best = exact.sort(stable=True)
        found.indices[row], found.distances[row] = best.indices[:k], best.values[:k]
