"""Whether a reconstruction tells whose image it is: the nearest of all training images is the right one.

What breaching calls IIP. A blurred image that looks like everybody's passes a threshold of PSNR and fails here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aegis_cache.audit.distances import find_nearest
from attacks.metrics.images import Mask, are_usable, check_images, clean_candidates, flatten
from federation.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """All training images, among which a reconstruction must point at its own.

    Attributes:
        images: float in [0, 1], shape (G, C, H, W).
        positions: shape (N,), where in `images` each real image stands.
    """

    images: NDArray[np.floating]
    positions: NDArray[np.integer]


def identify(real: NDArray[np.floating], found: NDArray[np.floating], gallery: Gallery) -> Mask:
    """Return for which real images the nearest training image, by squared error, is that image or a copy of it.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        found: float, same shape; image n is the reconstruction of `real[n]`, NaN where there is none.
        gallery: all training images.

    Returns:
        bool, shape (N,); False where there is no reconstruction.

    Raises:
        DataError: the images do not fit, or the gallery does not hold the real images where it says.
    """
    checked, everyone = check_images(real, "real images"), check_images(gallery.images, "training images")
    cleaned = clean_candidates(found, checked)
    positions = gallery.positions
    if positions.shape != (len(checked),) or not bool(((positions >= 0) & (positions < len(everyone))).all()):
        raise DataError(f"Expected {len(checked)} positions from 0 to {len(everyone) - 1}, found {positions!r}.")
    if len(cleaned) != len(checked) or not np.array_equal(everyone[positions], checked):
        raise DataError("Expected the real images at their positions among the training images, found others.")
    usable = np.flatnonzero(are_usable(cleaned))
    queries, references = torch.from_numpy(flatten(cleaned[usable])), torch.from_numpy(flatten(everyone))
    nearest = find_nearest(queries, references).indices[:, 0].numpy()
    right = np.zeros(len(checked), dtype=np.bool_)
    right[usable] = (everyone[nearest] == checked[usable]).all(axis=(1, 2, 3))
    return right
