"""Labels from the gradient of the last layer's bias: no image is needed, and no attack on the model either.

With the mean cross-entropy over B images with one label each, the gradient of the bias is g_c = p_c - n_c / B, where
p_c is the mean predicted probability of class c and n_c how often it occurs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from federation.errors import DataError


def recover_single_label(bias: Tensor) -> int:
    """Return the class of the one image behind a gradient (iDLG, Zhao et al., arXiv 2001.02610, section 3).

    Args:
        bias: a positive multiple of the gradient of the last layer's bias, shape (classes,).
    """
    return int(bias.argmin())


def recover_present_labels(bias: Tensor) -> NDArray[np.int64]:
    """Return the classes that must occur, rising: those with a negative gradient, because p_c is positive.

    Not guaranteed: all that occur. A class that is predicted more often than it occurs has a positive gradient.

    Args:
        bias: a positive multiple of the gradient of the last layer's bias, shape (classes,).
    """
    present: NDArray[np.int64] = np.flatnonzero(bias.cpu().numpy() < 0).astype(np.int64)
    return present


def estimate_label_counts(bias: Tensor, probabilities: NDArray[np.floating], images: int) -> NDArray[np.int64]:
    """Return how often each class occurs: int64, shape (classes,), sum `images`.

    n_c = B (p_c - g_c), rounded by largest remainders. Exact where p_c is known, as for planted networks that predict
    about the same for all images; for others the server takes p_c from what the network predicts for auxiliary images
    (Wainakh et al., arXiv 2105.09369, take it from the gradient of inputs they make up).

    Args:
        bias: the gradient of the last layer's bias itself, shape (classes,); a difference of parameters after one step
            of plain descent must be divided by the learning rate.
        probabilities: p_c, shape (classes,).
        images: B.

    Raises:
        DataError: shapes differ, or there is no image.
    """
    gradient = bias.double().cpu().numpy()
    if gradient.shape != probabilities.shape or gradient.ndim != 1 or images < 1:
        raise DataError(
            f"Expected as many probabilities as classes and images={images} >= 1, found shapes {gradient.shape} and "
            f"{probabilities.shape}."
        )
    wanted = np.clip(images * (probabilities - gradient), 0, None)
    wanted *= images / max(float(wanted.sum()), np.finfo(np.float64).tiny)
    counts: NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    short = images - int(counts.sum())
    counts[np.argsort(counts - wanted, kind="stable")[:short]] += 1
    return counts
