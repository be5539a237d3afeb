"""One linear layer: the model for fixed features, with few parameters for privacy noise to fall on."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional


class Linear(nn.Module):
    """A linear classifier without bias on inputs of mean zero and norm one, which starts at zero.

    Each input is normalized by its own mean and deviation (Wu and He, arXiv 1803.08494, with one group), so that no
    statistic of several images is kept and every per-image gradient is bounded before it is clipped.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        """Build the network for inputs of `shape` (C, H, W)."""
        super().__init__()
        self._scale = 1 / math.sqrt(math.prod(shape))
        self.output = nn.Linear(math.prod(shape), classes, bias=False)
        nn.init.zeros_(self.output.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of shape (B, classes) for `images`: float32 in [0, 1], shape (B, C, H, W)."""
        normalized = functional.group_norm(images, num_groups=1, eps=1e-8).flatten(1)
        logits: Tensor = self.output(normalized * self._scale)
        return logits
