"""How often each class occurs among the images of a cache, beside how often it does among the hospital's own."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Labels = Literal["as-train", "smoothed", "balanced"]
SMOOTHED = 0.125
"""Share of a "smoothed" cache that is divided evenly among all classes."""

_EVEN = {"as-train": 0.0, "smoothed": SMOOTHED, "balanced": 1.0}


def class_proportions(labels: Labels, own: NDArray[np.int64] | None, classes: int) -> NDArray[np.float64]:
    """Return the share of each class among synthetic images: float64, shape (classes,), of sum 1.

    A class hides among synthetic images of that class, so "as-train" hides most; but a hospital without some of the
    classes then forgets them while it trains. "smoothed" leaves an eighth to all classes alike, as additive smoothing
    does to frequencies: enough to be reminded, and a hospital with half of the classes gives up a sixteenth of what
    hides its own. "balanced" depends on no private label.

    Args:
        labels: "as-train" for the shares of `own`, "balanced" for equal ones, "smoothed" for seven parts of the former
            and one of the latter.
        own: images of each class that the hospital has; may be None for "balanced" alone.
        classes: of the data set.

    Raises:
        ValueError: the hospital's images are needed, and there are none.
    """
    even = np.full(classes, 1 / classes)
    if labels == "balanced":
        return even
    if own is None or own.sum() == 0:
        raise ValueError(f"Expected images of the hospital's own for labels={labels!r}.")
    shares: NDArray[np.float64] = own / own.sum()
    return (1 - _EVEN[labels]) * shares + _EVEN[labels] * even


def replace_evenly(drawn: NDArray[np.int64], labels: Labels, classes: int) -> NDArray[np.int64]:
    """Return labels drawn from a hospital's own, the part of them that `labels` wants so divided among all classes.

    Args:
        drawn: shape (M,).
        labels: as for `class_proportions`.
        classes: of the data set.
    """
    even = round(_EVEN[labels] * len(drawn))
    return np.concatenate([drawn[even:], np.arange(even) % classes])
