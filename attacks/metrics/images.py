"""The one form in which all metrics take images: float64 in [0, 1], and NaN where an attack found nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from federation.errors import DataError

Images = NDArray[np.float64]
Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]


def check_images(images: NDArray[np.floating], name: str) -> Images:
    """Return `images` as float64.

    Args:
        images: float in [0, 1], shape (N, C, H, W), N >= 1.
        name: what they are, for the error.

    Raises:
        DataError: they have another shape or kind, or hold values that are not in [0, 1].
    """
    checked = _check_shape(images, name)
    if len(checked) == 0:
        raise DataError(f"Expected at least one image in {name}, found none.")
    if not bool(((checked >= 0) & (checked <= 1)).all()):
        raise DataError(f"Expected {name} in [0, 1], found other values; undo the normalisation first.")
    return checked


def clean_candidates(candidates: NDArray[np.floating], like: Images) -> Images:
    """Return `candidates` as float64 clamped to [0, 1], and all NaN where any value of an image is not finite.

    An attack that finds nothing gives an image of NaN, never a black one: black is a guess.

    Args:
        candidates: float, shape (K, C, H, W), K may be 0.
        like: images of the shape that candidates must have.

    Raises:
        DataError: they have another shape or kind.
    """
    checked = _check_shape(candidates, "candidates")
    if checked.shape[1:] != like.shape[1:]:
        raise DataError(f"Expected candidates of shape {like.shape[1:]}, found {checked.shape[1:]}.")
    cleaned = np.clip(checked, 0.0, 1.0)
    cleaned[~are_usable(checked)] = np.nan
    return cleaned


def are_usable(candidates: Images) -> Mask:
    """Return which of `candidates`, shape (K, C, H, W), are finite everywhere: bool, shape (K,)."""
    usable: Mask = np.logical_and.reduce(np.isfinite(candidates), axis=(1, 2, 3))
    return usable


def brightness_of(images: Images) -> Values:
    """Return the mean pixel of each image in [0, 1]: float64, shape (N,)."""
    means: Values = images.mean(axis=(1, 2, 3))
    return means


def flatten(images: Images) -> Values:
    """Return one row an image: float64, shape (N, C * H * W)."""
    return images.reshape(len(images), int(np.prod(images.shape[1:])))


def _check_shape(images: NDArray[np.floating], name: str) -> Images:
    if images.ndim != 4 or not np.issubdtype(images.dtype, np.floating) or 0 in images.shape[1:]:
        raise DataError(f"Expected {name} as floats of shape (N, C, H, W), found {images.dtype} of {images.shape}.")
    return images.astype(np.float64)
