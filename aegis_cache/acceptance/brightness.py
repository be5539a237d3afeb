"""Targeted brightness: every synthetic image gets the brightness of a place in its class's real distribution.

Images drawn from a good generator fill the bins of a leak layer as real ones do, by chance. Aimed ones fill them evenly
(`aegis_cache.acceptance.coverage` says why that matters). The price: the distribution of the private images' brightness
decides what the cache looks like, which its provenance says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aegis_cache.acceptance.coverage import brightness
from federation.datasets.image_set import ImageSet

_GOLDEN = (5**0.5 - 1) / 2
_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class BrightnessTargets:
    """The sorted brightness of the private images, by class.

    Attributes:
        by_class: float64 in [0, 1], sorted, per class.
    """

    by_class: dict[int, NDArray[np.float64]]

    @classmethod
    def of(cls, images: ImageSet) -> BrightnessTargets:
        """Return the targets that `images`, with one label each, give."""
        values = brightness(images.images)
        return cls({int(label): np.sort(values[images.labels == label]) for label in np.unique(images.labels)})

    def aim(self, images: NDArray[np.uint8], labels: NDArray[np.int64], *, batch: int) -> NDArray[np.uint8]:
        """Return `images` shifted in brightness, so that each class is spread over its real distribution.

        The darkest image of a class gets the darkest target, and so on: shifts are as small as they can be. Targets lie
        evenly between the quantiles, at a place that moves with `batch`, so that batches fill each other's gaps.

        Args:
            images: uint8, shape (N, C, H, W).
            labels: shape (N,).
            batch: number of the batch.
        """
        aimed = images.copy()
        values = brightness(images)
        for label in np.unique(labels):
            chosen = np.flatnonzero(labels == label)
            if int(label) not in self.by_class:
                continue
            ranked = chosen[np.argsort(values[chosen], kind="stable")]
            places = (np.arange(len(ranked)) + (batch * _GOLDEN) % 1) / len(ranked)
            aimed[ranked] = _shift(images[ranked], np.quantile(self.by_class[int(label)], places))
        return aimed


def _shift(images: NDArray[np.uint8], targets: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return `images` with mean brightness `targets`: only grey levels that are neither black nor white move.

    Clipping takes some of every shift back, so it is repeated a few times.
    """
    exact = images.astype(np.float64)
    inner = (images > 0) & (images < 255)
    shape = (-1,) + (1,) * (images.ndim - 1)
    for _ in range(_ROUNDS):
        missing = targets * 255 - np.rint(exact).reshape(len(images), -1).mean(axis=1)
        share = np.maximum(inner.reshape(len(images), -1).mean(axis=1), 1e-3)
        exact = np.clip(exact + np.where(inner, (missing / share).reshape(shape), 0), 0, 255)
    return np.rint(exact).astype(np.uint8)
