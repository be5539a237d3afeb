"""The one way in which stored images become what a network sees; training, evaluation and synthetic data share it."""

from __future__ import annotations

import torch
from torch import Tensor


def to_unit_interval(images: Tensor) -> Tensor:
    """Return uint8 `images`, shape (B, C, H, W), as float32 in [0, 1]."""
    return images.to(torch.float32).div_(255.0)
