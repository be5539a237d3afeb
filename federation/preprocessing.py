"""The one way in which stored images become what a network sees; training, evaluation and synthetic data share it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

PREPROCESSING = "unit-interval-1"
"""Names what this module does; a cache of images aligned by another version is refused."""

_LUMA = (0.299, 0.587, 0.114)


def to_unit_interval(images: Tensor) -> Tensor:
    """Return uint8 `images`, shape (B, C, H, W), as float32 in [0, 1]."""
    return images.to(torch.float32).div_(255.0)


def to_bytes(images: Tensor) -> Tensor:
    """Return float32 `images` in [0, 1], any shape, as uint8; the inverse of `to_unit_interval`."""
    return images.clamp(0, 1).mul(255).round().to(torch.uint8)


def align(images: Tensor, *, channels: int, height: int, width: int) -> Tensor:
    """Return `images` as the task stores its own: cropped, resized, in its channels, in 8 bits.

    The largest centred piece of the task's proportions is cut out and resized with antialiasing, RGB becomes grey by
    the luma of ITU-R BT.601, grey becomes RGB by repeating.

    Args:
        images: float32 in [0, 1], shape (B, C, H, W) with 1 or 3 channels.
        channels: 1 or 3.
        height: in pixels.
        width: in pixels.

    Returns:
        uint8, shape (B, channels, height, width).

    Raises:
        ValueError: `images` or `channels` are of another kind.
    """
    if images.dim() != 4 or images.shape[1] not in (1, 3) or channels not in (1, 3) or not images.is_floating_point():
        raise ValueError(
            f"Expected float images of shape (B, 1 or 3, H, W) and channels=1 or 3, found {images.dtype} "
            f"{tuple(images.shape)} and channels={channels}."
        )
    return to_bytes(_resize(_crop(_recolour(images, channels), height / width), height, width))


def _recolour(images: Tensor, channels: int) -> Tensor:
    if images.shape[1] == channels:
        return images
    if channels == 3:
        return images.expand(-1, 3, -1, -1)
    return (images * images.new_tensor(_LUMA)[:, None, None]).sum(dim=1, keepdim=True)


def _crop(images: Tensor, proportion: float) -> Tensor:
    """Return the largest centred piece whose height is `proportion` times its width."""
    height, width = images.shape[2:]
    rows = min(height, max(1, round(width * proportion)))
    columns = min(width, max(1, round(height / proportion)))
    top, left = (height - rows) // 2, (width - columns) // 2
    return images[:, :, top : top + rows, left : left + columns]


def _resize(images: Tensor, height: int, width: int) -> Tensor:
    if tuple(images.shape[2:]) == (height, width):
        return images
    return functional.interpolate(images, size=(height, width), mode="bilinear", align_corners=False, antialias=True)
