"""Random changes that keep an image's meaning, drawn from a generator that is passed in.

They are drawn for a whole batch and applied to any part of it, so that a batch which is computed in pieces is the same
batch, however it is cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_MAX_SHIFT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """What is done to each image of a batch; a step that is None is left out.

    Attributes:
        offsets: int64, shape (2, N): rows and columns by which images are moved, plus two, so from 0 to 4.
        flipped: bool, shape (N,): which images are mirrored left to right.
        gains: float32, shape (N,): by which images are multiplied.
    """

    offsets: Tensor | None = None
    flipped: Tensor | None = None
    gains: Tensor | None = None

    def part(self, start: int, stop: int) -> Augmentation:
        """Return what is done to the images from `start` to before `stop`."""
        return Augmentation(
            offsets=None if self.offsets is None else self.offsets[:, start:stop],
            flipped=None if self.flipped is None else self.flipped[start:stop],
            gains=None if self.gains is None else self.gains[start:stop],
        )

    def apply(self, images: Tensor) -> Tensor:
        """Return changed copies of `images`: float32 in [0, 1], shape (N, C, H, W)."""
        if self.offsets is not None:
            images = _shift(images, self.offsets.to(images.device))
        if self.flipped is not None:
            images = torch.where(self.flipped.to(images.device)[:, None, None, None], images.flip(3), images)
        if self.gains is not None:
            images = (images * self.gains.to(images.device)[:, None, None, None]).clamp_(0, 1)
        return images


def augment(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Return changed copies of `images`: float32, shape (B, C, H, W).

    Args:
        images: the batch.
        kind: as for `draw_augmentation`.
        generator: a CPU generator; advances by the same amount for every batch of the same size.
    """
    return draw_augmentation(len(images), kind, generator).apply(images)


def draw_augmentation(count: int, kind: str, generator: torch.Generator) -> Augmentation:
    """Return random changes of `count` images.

    Args:
        count: how many.
        kind: "none", "shift" (translation by up to two pixels, edges repeated) or "shift-flip" (also mirrored).
        generator: a CPU generator.
    """
    if kind == "none":
        return Augmentation()
    offsets = draw_offsets(count, generator)
    return Augmentation(
        offsets=offsets, flipped=torch.rand(count, generator=generator) < 0.5 if kind == "shift-flip" else None
    )


def draw_offsets(count: int, generator: torch.Generator) -> Tensor:
    """Return random `Augmentation.offsets` for `count` images."""
    return torch.randint(0, 2 * _MAX_SHIFT + 1, (2, count), generator=generator)


def _shift(images: Tensor, offsets: Tensor) -> Tensor:
    count, _, height, width = images.shape
    padded = functional.pad(images, [_MAX_SHIFT] * 4, mode="replicate")
    rows = offsets[0, :, None] + torch.arange(height, device=images.device)
    columns = offsets[1, :, None] + torch.arange(width, device=images.device)
    each = torch.arange(count, device=images.device)[:, None, None]
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
