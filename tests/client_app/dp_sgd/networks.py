"""Networks that are awkward to train, and everything that hangs on a network beside its values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.client_app.dp_sgd.streams import Linear


class Prior(nn.Module):
    """A linear model whose logits are shifted by the logs of given frequencies."""

    def __init__(self, frequencies: list[float]) -> None:
        super().__init__()
        self.inner = Linear()
        self.shift = torch.tensor(frequencies).log()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images) + self.shift
        return logits


class Normalizing(Linear):
    """Divides an image by its brightness, and a black one by zero: its gradient is NaN."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images / images.flatten(1).sum(1).view(-1, 1, 1, 1))


class Exploding(Linear):
    """Multiplies a white image until its gradient leaves the range of float32, and others not at all."""

    def forward(self, images: Tensor) -> Tensor:
        white = images.flatten(1).amin(dim=1).view(-1, 1, 1, 1) == 1
        return super().forward(torch.where(white, images * 3e38, images))


def traces(model: nn.Module) -> list[Any]:
    """Return everything that hangs on a model beside the values of its parameters."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    modules = [(type(m), sorted(vars(m)), [len(getattr(m, kind)) for kind in hooks]) for m in model.modules()]
    return [modules, list(model.state_dict()), [(dict(vars(p)), p.grad, p.requires_grad) for p in model.parameters()]]
