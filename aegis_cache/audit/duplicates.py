"""Synthetic images that repeat an image of the hospital pixel by pixel: what a build refuses by default.

A copy that was shifted, mirrored, scaled or recoloured is none of these; distances in features may show it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aegis_cache.audit.distances import find_nearest
from federation.errors import DataError
from federation.preprocessing import to_unit_interval

FACTOR = 0.5
GREY_LEVELS = 2
_TYPICAL = 0.05

Images = NDArray[np.uint8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Which candidates repeat a training image; one may do so in several ways.

    Attributes:
        exact: every pixel is equal, shape (N,).
        quantized: no pixel of the nearest training image differs by more than `GREY_LEVELS` of 255: the two are equal
            once both are rounded to coarser grey levels.
        near: the distance to a training image is below `FACTOR` times the distance at which the nearest five percent of
            that one's class lie from their nearest neighbour. The smallest distance would not do: two views of one
            patient would switch the test off.
        nearest: index of the nearest training image, int64.
    """

    exact: Mask
    quantized: Mask
    near: Mask
    nearest: NDArray[np.int64]

    @property
    def found(self) -> Mask:
        """Which candidates repeat a training image in any of the ways."""
        return self.exact | self.quantized | self.near


@dataclass(frozen=True, slots=True)
class _Group:
    """The different training images of one class: indices, pixels in [0, 1], and the distance that is too near."""

    indices: NDArray[np.int64]
    pixels: Tensor
    limit: float


class DuplicateFinder:
    """Compares candidates with the same training images again and again.

    Nearest-neighbour tests find copies only, they prove nothing: that nothing is found says nothing about what else the
    images tell of the training set.
    """

    def __init__(self, train: Images, labels: NDArray[np.int64] | None = None, *, factor: float = FACTOR) -> None:
        """Measure how far apart the training images lie.

        Args:
            train: uint8, shape (N, C, H, W), at least one.
            labels: class of each; None if all are of one.
            factor: what share of that distance between training images counts as near, in [0, 1].

        Raises:
            DataError: there are no images, or they are not uint8 of that shape.
            ValueError: `factor` lies outside [0, 1].
        """
        _require_images(train)
        if len(train) == 0:
            raise DataError("Expected training images to compare with, found none.")
        if not 0 <= factor <= 1:
            raise ValueError(f"Expected 0 <= factor={factor} <= 1.")
        groups = np.zeros(len(train), dtype=np.int64) if labels is None else labels
        self._train = train
        self._groups = [_make_group(train, np.flatnonzero(groups == label), factor) for label in np.unique(groups)]
        self._known = {image.tobytes() for image in train}

    def find(self, candidates: Images) -> Duplicates:
        """Return which of `candidates`, uint8, shape (M, C, H, W), repeat a training image of any class.

        Raises:
            DataError: they are not of the training images' type and shape.
        """
        _require_images(candidates)
        if candidates.shape[1:] != self._train.shape[1:]:
            raise DataError(f"Expected images of shape {self._train.shape[1:]}, found {candidates.shape[1:]}.")
        pixels = _as_vectors(candidates)
        best = np.full(len(candidates), np.inf)
        nearest = np.zeros(len(candidates), dtype=np.int64)
        near = np.zeros(len(candidates), dtype=bool)
        for group in self._groups:
            found = find_nearest(pixels, group.pixels)
            distances = found.distances[:, 0].numpy()
            near |= distances < group.limit
            closer = distances < best
            best[closer] = distances[closer]
            nearest[closer] = group.indices[found.indices[:, 0].numpy()][closer]
        exact = np.array([image.tobytes() in self._known for image in candidates], dtype=bool)
        return Duplicates(
            exact=exact, quantized=_within_levels(candidates, self._train, nearest), near=near, nearest=nearest
        )


def find_duplicates(candidates: Images, train: Images, *, factor: float = FACTOR) -> Mask:
    """Return which of `candidates` repeat an image of `train`, exactly, up to quantization, or nearly: shape (M,).

    A build that compares many batches with one training set keeps a `DuplicateFinder` instead.

    Args:
        candidates: uint8, shape (M, C, H, W).
        train: uint8, shape (N, C, H, W), of one class, at least one.
        factor: as for `DuplicateFinder`.

    Raises:
        DataError: the images are not uint8, or shapes differ, or `train` is empty.
        ValueError: `factor` lies outside [0, 1].
    """
    return DuplicateFinder(train, factor=factor).find(candidates).found


def _make_group(train: Images, indices: NDArray[np.int64], factor: float) -> _Group:
    first: dict[bytes, int] = {}
    for index in indices.tolist():
        first.setdefault(train[index].tobytes(), index)
    different = np.array(list(first.values()), dtype=np.int64)
    pixels = _as_vectors(train[different])
    limit = 0.0
    if len(different) > 1:
        apart = find_nearest(pixels, pixels, exclude_self=True).distances[:, 0].double()
        limit = factor * float(apart.quantile(_TYPICAL))
    return _Group(different, pixels, limit)


def _as_vectors(images: Images) -> Tensor:
    return to_unit_interval(torch.from_numpy(images.copy())).flatten(1)


def _within_levels(candidates: Images, train: Images, nearest: NDArray[np.int64]) -> Mask:
    close = [
        bool((np.abs(candidate.astype(np.int16) - train[index]) <= GREY_LEVELS).all())
        for candidate, index in zip(candidates, nearest, strict=True)
    ]
    return np.array(close, dtype=bool)


def _require_images(images: Images) -> None:
    if images.dtype != np.uint8 or images.ndim != 4:
        raise DataError(f"Expected uint8 images of shape (N, C, H, W), found {images.dtype} of shape {images.shape}.")
