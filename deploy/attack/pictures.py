"""A picture of originals above what was read of them; it shows patients and is written where it is asked for only."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from federation.durable import write_durably

_GAP, _LINE = 4, 14
_SIDE = 84
_NARROWEST = 560
_WATERMARK = (176, 0, 0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Row:
    """One line of the picture.

    Attributes:
        label: what stands above it, in ASCII.
        images: float, shape (n, C, H, W), shown clamped to [0, 1]; NaN is left white.
    """

    label: str
    images: NDArray[np.floating] = field(repr=False)


def write_pictures(path: Path, rows: Sequence[Row], *, caption: str) -> None:
    """Write a PNG of `rows`, readable by its owner only, with `caption` in red above and below.

    Args:
        path: of the PNG; its folder must exist.
        rows: at least one with at least one image.
        caption: says that these are images of a test, and whose.

    Raises:
        OSError: the volume refused.
    """
    tall, wide = rows[0].images.shape[2:]
    scale = max(1, round(_SIDE / max(tall, wide)))
    most = max(len(row.images) for row in rows)
    width = max(_NARROWEST, most * (wide * scale + _GAP) + _GAP)
    step = _LINE + tall * scale + _GAP
    sheet = Image.new("RGB", (width, 2 * _LINE + 2 * _GAP + step * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    for number, row in enumerate(rows):
        top = _LINE + _GAP + number * step
        draw.text((_GAP, top), row.label, fill="black")
        for column, image in enumerate(row.images):
            left = _GAP + column * (wide * scale + _GAP)
            sheet.paste(_as_picture(image, scale), (left, top + _LINE))
    for top in (1, sheet.height - _LINE):
        draw.text((_GAP, top), caption, fill=_WATERMARK)
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    write_durably(path, content.getvalue(), mode=0o600)


def _as_picture(image: NDArray[np.floating], scale: int) -> Image.Image:
    shown = np.nan_to_num(image, nan=1.0, posinf=1.0, neginf=0.0).clip(0, 1)
    pixels = (255 * np.broadcast_to(shown, (3, *shown.shape[1:]))).round().astype(np.uint8).transpose(1, 2, 0)
    size = (shown.shape[2] * scale, shown.shape[1] * scale)
    return Image.fromarray(np.ascontiguousarray(pixels)).resize(size, Image.Resampling.NEAREST)
