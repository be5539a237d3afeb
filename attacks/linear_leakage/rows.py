"""Rows that know nothing of bins: each is active for the images it happens to like, and may see one image alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.linear_leakage.read_out import Moved

_TOLERANCE = 1e-4
_NOISE = 8.0


def read_rows(moved: Moved, *, tolerance: float = _TOLERANCE) -> NDArray[np.float64]:
    """Return one candidate a row: float64, shape (k, n), NaN where the row saw nothing or repeats an earlier one.

    Where one image alone is active in row i, g^W_i / g^b_i is that image (Phong et al., IEEE TIFS 13, 2018, 1333-1345);
    several give their mean, weighted by what each adds to the gradient. Rows that see the same image alone all repeat
    it. Of such a group the first row keeps the image, as the row with the greatest |g^b| has it: rounded least.

    Args:
        moved: a multiple of the layer's gradient.
        tolerance: distance relative to a candidate's length within which another repeats it.
    """
    heard = np.abs(moved.bias) > _NOISE * np.finfo(np.float32).eps * float(np.abs(moved.bias).max(initial=0.0))
    found = np.full(moved.weight.shape, np.nan)
    rows = np.flatnonzero(heard)
    if not len(rows):
        return found
    values = moved.weight[rows] / moved.bias[rows, None]
    alike = _are_alike(values, tolerance)
    first = alike.argmax(axis=1)
    strengths = np.abs(moved.bias[rows])
    for number in np.unique(first):
        group = np.flatnonzero(first == number)
        found[rows[number]] = values[group[strengths[group].argmax()]]
    return found


def place_alone(layer: nn.Linear, images: Tensor) -> NDArray[np.int64]:
    """Return for each image the first row of `layer` in which it alone of `images` is active, else -1: shape (B,).

    Whatever else the hospital trains on may be active there, too; hand over all of it to know.

    Args:
        layer: its units are rectified.
        images: float32 in [0, 1], shape (B, C, H, W).
    """
    active = (layer(images.flatten(1)) > 0).cpu().numpy()
    alone = active & (active.sum(axis=0) == 1)
    places: NDArray[np.int64] = np.where(alone.any(axis=1), alone.argmax(axis=1), -1).astype(np.int64)
    return places


def _are_alike(values: NDArray[np.float64], tolerance: float) -> NDArray[np.bool_]:
    """Return which rows of `values`, shape (r, n), lie within `tolerance` of each other: shape (r, r)."""
    squares = np.square(values).sum(axis=1)
    distances = squares[:, None] + squares - 2 * values @ values.T
    alike: NDArray[np.bool_] = distances <= tolerance**2 * np.minimum(squares[:, None], squares)
    np.fill_diagonal(alike, val=True)
    return alike
