"""Whose presence DP-SGD protects, and how a Poisson sample of them becomes the images of one step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from client_app.noise.source import NoiseSource
from federation.config import PrivacyConfig
from federation.datasets.image_set import ImageSet
from federation.errors import SiteError, SiteErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The units of one step, as images.

    Attributes:
        indices: int64, shape (N,): which images; those of one unit stand together.
        sizes: int64, shape (U,): how many of them each unit brings, at least one.
    """

    indices: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def pieces(self, largest: int) -> Iterator[Sample]:
        """Yield the sample in order, in as few parts of at most `largest` images as whole units allow.

        An empty sample has no part. A unit of more than `largest` images is a part of its own.
        """
        ends = np.cumsum(self.sizes)
        first = 0
        while first < len(self.sizes):
            before = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, before + largest, side="right")), first + 1)
            yield Sample(indices=self.indices[before : int(ends[last - 1])], sizes=self.sizes[first:last])
            first = last


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Every unit of privacy of one training split.

    Attributes:
        order: int64, shape (N,): image indices, unit by unit.
        starts: int64, shape (U + 1,): where each unit's images begin in `order`.
        limit: most images that one unit brings to a step.
    """

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    limit: int

    @property
    def count(self) -> int:
        """The number of units."""
        return len(self.starts) - 1

    def sample(self, probability: float, noise: NoiseSource) -> Sample:
        """Return a Poisson sample: each unit is in it with `probability`, independently; it may be empty.

        Who is in it stays secret as long as the stream of `noise` does, which amplification by sampling rests on.
        """
        return self._images_of(np.flatnonzero(noise.uniform(self.count).numpy() < probability), noise)

    def everyone(self, noise: NoiseSource) -> Sample:
        """Return all units, each with at most `limit` images drawn from the stream of `noise`."""
        return self._images_of(np.arange(self.count), noise)

    def _images_of(self, units: NDArray[np.int64], noise: NoiseSource) -> Sample:
        sizes = self.starts[units + 1] - self.starts[units]
        owner = np.repeat(np.arange(len(units)), sizes)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        indices = self.order[np.repeat(self.starts[units], sizes) + rank]
        if len(sizes) and sizes.max() > self.limit:
            shuffled = np.lexsort((noise.uniform(len(indices)).numpy(), owner))
            indices = indices[shuffled][rank < self.limit]
            sizes = np.minimum(sizes, self.limit)
        return Sample(indices=indices, sizes=sizes)


def group_units(images: ImageSet, privacy: PrivacyConfig) -> Units:
    """Return the units that `privacy.unit` names: every image, or every patient.

    Raises:
        SiteError: there is no image, or patients are asked for where no image has a patient's number.
    """
    if not len(images):
        raise SiteError(SiteErrorCode.EMPTY_SPLIT, "Expected at least 1 image to train on, found 0.")
    if privacy.unit == "record":
        return Units(order=np.arange(len(images)), starts=np.arange(len(images) + 1), limit=1)
    if images.patients is None:
        raise SiteError(
            SiteErrorCode.CONFIGURATION,
            "Expected a patient's number for each training image under privacy.unit = 'patient', found none: add the "
            "array train_patients (or patients) to the NPZ file, or ask for privacy.unit = 'record'.",
        )
    _, sizes = np.unique(images.patients, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return Units(order=np.argsort(images.patients, kind="stable"), starts=starts, limit=privacy.images_per_patient)


def count_units(images: ImageSet, privacy: PrivacyConfig) -> int:
    """Return how many units `privacy` protects in `images`.

    Raises:
        SiteError: as for `group_units`.
    """
    return group_units(images, privacy).count
