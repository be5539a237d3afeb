"""How many images of each class: whole numbers after proportions, and no more than are missing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def share_out(total: int, proportions: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return `total` in whole parts after `proportions`, not all zero: largest remainders first, ties to the first."""
    exact = total * proportions / proportions.sum()
    parts: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - parts), kind="stable")
    parts[order[: total - int(parts.sum())]] += 1
    return parts


def take_missing(
    labels: NDArray[np.int64], accepted: NDArray[np.bool_], missing: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the indices of accepted images, of each class as many as are missing, in order."""
    chosen = [np.flatnonzero(accepted & (labels == label))[: missing[label]] for label in range(len(missing))]
    indices: NDArray[np.int64] = np.sort(np.concatenate(chosen))
    return indices
