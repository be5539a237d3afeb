"""What a partitioning method decides: which share of each stratum every hospital gets, in all three splits alike.

A stratum is a class for the methods that look at labels, and the whole split for those that do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The outcome of a method's draw, made once and applied to train, validation and test.

    Attributes:
        values: float64, shape (sites, strata); each column sums to 1, or to 0 where the stratum has no image.
        exclusive: whether a hospital may never hold an image of a stratum in which its share is 0.
    """

    values: NDArray[np.float64]
    exclusive: bool = False

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Which strata each hospital may hold, shape (sites, strata)."""
        return self.values > 0 if self.exclusive else np.ones_like(self.values, dtype=np.bool_)


def apportion(sizes: NDArray[np.int64], shares: Shares) -> NDArray[np.int64]:
    """Return how many images of each stratum each hospital gets: shape (sites, strata), columns summing to `sizes`.

    Cumulated shares are rounded, so each count is within one image of its share.

    Args:
        sizes: number of images per stratum, shape (strata,).
        shares: the hospitals' shares.
    """
    edges = np.rint(np.cumsum(shares.values, axis=0) * sizes).astype(np.int64)
    return np.diff(edges, axis=0, prepend=0)


def deal(strata: NDArray[np.int64], counts: NDArray[np.int64], stream: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return the image indices of each hospital in ascending order, drawn at random within each stratum.

    Args:
        strata: stratum of each image, shape (N,).
        counts: images of each stratum for each hospital, shape (sites, strata).
        stream: where the draws come from.
    """
    hands: list[list[NDArray[np.int64]]] = [[] for _ in counts]
    for stratum, column in enumerate(counts.T):
        shuffled = stream.permutation(np.flatnonzero(strata == stratum))
        for hand, piece in zip(hands, np.split(shuffled, np.cumsum(column)[:-1]), strict=True):
            hand.append(piece)
    return [np.sort(np.concatenate(hand)) for hand in hands]
