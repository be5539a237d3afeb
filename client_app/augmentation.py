"""Random changes that keep an image's meaning, drawn from a generator that is passed in."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_MAX_SHIFT = 2


def augment(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Return changed copies of `images`: float32, shape (B, C, H, W).

    Args:
        images: the batch.
        kind: "none", "shift" (translation by up to two pixels, edges repeated) or "shift-flip" (also mirrored).
        generator: a CPU generator; advances by the same amount for every batch of the same size.
    """
    if kind == "none":
        return images
    shifted = _shift(images, generator)
    return _flip(shifted, generator) if kind == "shift-flip" else shifted


def _shift(images: Tensor, generator: torch.Generator) -> Tensor:
    count, _, height, width = images.shape
    padded = functional.pad(images, [_MAX_SHIFT] * 4, mode="replicate")
    offsets = torch.randint(0, 2 * _MAX_SHIFT + 1, (2, count), generator=generator).to(images.device)
    rows = offsets[0, :, None] + torch.arange(height, device=images.device)
    columns = offsets[1, :, None] + torch.arange(width, device=images.device)
    each = torch.arange(count, device=images.device)[:, None, None]
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def _flip(images: Tensor, generator: torch.Generator) -> Tensor:
    chosen = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
    return torch.where(chosen[:, None, None, None], images.flip(3), images)
