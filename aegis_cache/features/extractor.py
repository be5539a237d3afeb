"""What every feature extractor offers, and the loop over batches that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from federation.errors import DataError

_BATCH = 64


class FeatureExtractor(Protocol):
    """Turns images into vectors whose distances mean something; it never changes."""

    @property
    def identity(self) -> str:
        """Name and sha256 digest of everything the features depend on but the images."""

    def extract(self, images: Tensor) -> Tensor:
        """Return the features of `images`; no gradient is recorded.

        Args:
            images: float32 in [0, 1], shape (N, C, H, W).

        Returns:
            float32, shape (N, F).

        Raises:
            DataError: the images have another type or shape than the extractor takes.
        """


def require_images(images: Tensor) -> None:
    """Do nothing if `images` is float32 of shape (N, C, H, W).

    Raises:
        DataError: it is not, or there is no image.
    """
    if images.dtype is not torch.float32 or images.ndim != 4 or len(images) == 0:
        raise DataError(
            f"Expected float32 images of shape (N, C, H, W), found {images.dtype} of shape {tuple(images.shape)}."
        )


def extract_in_batches(images: Tensor, extract: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `extract(batch)` of all batches of `images` in order, flattened: float32 on the CPU, shape (N, F).

    Args:
        images: float32 in [0, 1], shape (N, C, H, W).
        extract: takes (B, C, H, W) and returns (B, ...).

    Raises:
        DataError: as `require_images`.
    """
    require_images(images)
    with torch.no_grad():
        return torch.cat([extract(batch).flatten(1).float().cpu() for batch in images.split(_BATCH)])
