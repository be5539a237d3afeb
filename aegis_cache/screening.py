"""What a candidate must be before it may enter a cache: new, no copy of a private image, within the budget."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from aegis_cache.acceptance.budget import Budget
from aegis_cache.audit.duplicates import DuplicateFinder
from federation.datasets.image_set import ImageSet

_DIGITS = 24


class Screen:
    """Looks at candidates, batch by batch."""

    def __init__(self, private: ImageSet | None, budget: Budget | None) -> None:
        """Compare with `private` images and `budget`, where they are given."""
        self._finder = None if private is None else DuplicateFinder(private.images, private.labels)
        self._budget = budget

    def find_fresh(self, images: NDArray[np.uint8], known: Collection[str]) -> NDArray[np.bool_]:
        """Return which images are not among `known` digests, not twice here, and no copies of private ones.

        Args:
            images: uint8, shape (N, C, H, W).
            known: digests of images that are in the cache already, as `digest_images` makes them.
        """
        fresh, seen = np.ones(len(images), dtype=bool), set(known)
        for index, digest in enumerate(digest_images(images)):
            fresh[index] = digest not in seen
            seen.add(digest)
        if self._finder is not None and len(images):
            fresh &= ~self._finder.find(images).found
        return fresh

    def judge(
        self, images: NDArray[np.uint8], labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return which images lie within the budget, and their squared distances; shape (N,) each."""
        if self._budget is None:
            return np.ones(len(images), dtype=bool), np.zeros(len(images))
        within, distances = self._budget.accept(ImageSet(images=images, labels=labels))
        return within.numpy(), distances.numpy()


def digest_images(images: NDArray[np.uint8]) -> list[str]:
    """Return a digest of each image, long enough to tell images of a cache apart."""
    return [hashlib.sha256(image.tobytes()).hexdigest()[:_DIGITS] for image in images]
