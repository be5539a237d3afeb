"""Gradients image by image, by autograd: what steps of DP-SGD are compared with."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from federation.datasets.image_set import ImageSet


def pixels_of(images: ImageSet) -> Tensor:
    return torch.from_numpy(images.images / 255).float()


def gradients_of(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return each image's gradient as a row, by autograd on one image at a time."""

    def loss(image: Tensor, label: Tensor) -> Tensor:
        logits = model(image[None])[0]
        several = label.ndim > 0
        if several:
            return functional.binary_cross_entropy_with_logits(logits, label.float())
        return functional.cross_entropy(logits, label)

    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    for image, label in zip(images, labels, strict=True):
        slopes = torch.autograd.grad(loss(image, label), trainable)
        rows.append(torch.cat([slope.flatten() for slope in slopes]))
    return torch.stack(rows)


def clipped_sum(rows: Tensor, clip_norm: float) -> Tensor:
    """Return the sum of `rows`, each of which is shortened to `clip_norm` where it is longer."""
    return sum(row * min(1.0, clip_norm / float(row.double().norm())) for row in rows)
