"""Public images to try a received model on: no private image has a part in them, and they are always the same."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from federation.datasets.image_set import DatasetInfo

_PER_SCALE = 64
_SCALES = (1, 2, 4, 8)
_GRAIN = 0.03
_SEED = 0


def draw_probes(info: DatasetInfo) -> Tensor:
    """Return 256 smooth images of noise, of all brightnesses and contrasts: float32 in [0, 1], shape (256, C, H, W).

    Medical images are smooth, so a pixel's neighbours say much about it; white noise would hide what a layer measures
    of them. A quarter of the images is even, the others are noise on grids of 2, 4 and 8 points, enlarged.
    """
    generator = torch.Generator().manual_seed(_SEED)
    shape = (_PER_SCALE, info.channels, info.height, info.width)
    return torch.cat([_draw_scale(points, shape, generator) for points in _SCALES])


def _draw_scale(points: int, shape: tuple[int, int, int, int], generator: torch.Generator) -> Tensor:
    count, channels, height, width = shape
    coarse = torch.rand(count, channels, min(points, height), min(points, width), generator=generator)
    fields = functional.interpolate(coarse, (height, width), mode="bilinear", align_corners=False)
    brightness, contrast = torch.rand(2, count, 1, 1, 1, generator=generator)
    if points == 1:
        contrast = torch.zeros_like(contrast)
    grain = _GRAIN * torch.randn(shape, generator=generator)
    images: Tensor = brightness + 2 * contrast * (fields - 0.5) + grain
    return images.clamp(0, 1)
