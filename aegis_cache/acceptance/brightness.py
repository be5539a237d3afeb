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
from federation.randomness import numpy_stream

_GOLDEN = (5**0.5 - 1) / 2
_ROUNDS = 8
_WHITE = 255


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
        aimed, stream = images.copy(), numpy_stream(batch, "brightness")
        values = brightness(images)
        for label in np.unique(labels):
            chosen = np.flatnonzero(labels == label)
            if int(label) not in self.by_class:
                continue
            ranked = chosen[np.argsort(values[chosen], kind="stable")]
            places = (np.arange(len(ranked)) + (0.5 + batch * _GOLDEN) % 1) / len(ranked)
            totals = np.rint(np.quantile(self.by_class[int(label)], places) * _WHITE * images[0].size).astype(np.int64)
            for index, total in zip(ranked, totals, strict=True):
                flat = images[index].reshape(-1).astype(np.int64)
                _reach(flat, int(total), stream)
                aimed[index] = flat.astype(np.uint8).reshape(images.shape[1:])
        return aimed


def _reach(image: NDArray[np.int64], total: int, stream: np.random.Generator) -> None:
    """Change `image`, flat, until its sum is `total`; pixels that are black or white stay so.

    All others move by whole grey levels, and as many of them by one more as are missing: bins are narrower than a grey
    level is wide, so the remainder decides which one is hit. Clipping takes some of a step back, so it is repeated.
    """
    inner = np.flatnonzero((image > 0) & (image < _WHITE))
    for _ in range(_ROUNDS):
        missing = total - int(image.sum())
        movable = inner[image[inner] < _WHITE] if missing > 0 else inner[image[inner] > 0]
        if missing == 0 or len(movable) == 0:
            return
        whole, rest = divmod(abs(missing), len(movable))
        steps = np.full(len(movable), whole)
        steps[stream.permutation(len(movable))[:rest]] += 1
        image[movable] = np.clip(image[movable] + (steps if missing > 0 else -steps), 0, _WHITE)
