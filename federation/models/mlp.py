"""A network with one hidden layer, for small inputs and tabular rows."""

from __future__ import annotations

import math

from torch import Tensor, nn


class Mlp(nn.Module):
    """One hidden layer of rectified units over the flattened input."""

    def __init__(self, shape: tuple[int, int, int], classes: int, *, hidden_units: int) -> None:
        """Build the network for inputs of `shape` (C, H, W)."""
        super().__init__()
        self.hidden = nn.Linear(math.prod(shape), hidden_units)
        self.output = nn.Linear(hidden_units, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of shape (B, classes) for `images`: float32 in [0, 1], shape (B, C, H, W)."""
        logits: Tensor = self.output(self.hidden(images.flatten(1)).relu())
        return logits
