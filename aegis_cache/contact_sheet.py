"""A picture of real images beside synthetic ones, class by class; it shows patients and stays in the hospital."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from federation.datasets.image_set import ImageSet
from federation.durable import write_durably

_GAP = 2
_MIDDLE = 10
_SMALLEST_SIDE = 56


def write_contact_sheet(path: Path, real: ImageSet, synthetic: ImageSet, *, classes: int, columns: int = 10) -> None:
    """Write a PNG, readable by its owner only: one row per class, real images on the left, synthetic on the right.

    Args:
        path: of the PNG; its folder must exist.
        real: uint8 images with one label each.
        synthetic: of the same shape.
        classes: number of classes; one without images leaves its row empty.
        columns: images of each kind in a row.

    Raises:
        OSError: the volume refused.
    """
    height, width = synthetic.images.shape[2:]
    half = columns * (width + _GAP)
    sheet = np.full((classes * (height + _GAP), 2 * half + _MIDDLE, 3), 255, dtype=np.uint8)
    for label in range(classes):
        for images, left in ((real, 0), (synthetic, half + _MIDDLE)):
            chosen = images.images[images.labels == label][:columns]
            for number, image in enumerate(chosen):
                top, start = label * (height + _GAP), left + number * (width + _GAP)
                sheet[top : top + height, start : start + width] = _as_rgb(image)
    scale = max(1, -(-_SMALLEST_SIDE // min(height, width)))
    picture = Image.fromarray(sheet).resize((sheet.shape[1] * scale, sheet.shape[0] * scale), Image.Resampling.NEAREST)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    write_durably(path, buffer.getvalue(), mode=0o600)


def _as_rgb(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `image`, shape (C, H, W), as shape (H, W, 3)."""
    return np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0)
