"""What the network finds harder: an image it learned from, or a fresh one? For the membership test of the audit."""

from __future__ import annotations

import torch
from torch import Tensor

from aegis_cache.generation.diffusion.network import DenoisingNetwork
from aegis_cache.generation.diffusion.schedule import signal_rates

_STEPS = (50, 150, 300, 500, 700)
_BATCH = 256


@torch.inference_mode()
def denoising_losses(network: DenoisingNetwork, images: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared error of the velocity of each image, over five noise levels, with the same noise for all.

    Args:
        network: in evaluation mode.
        images: float32 in [0, 1], shape (B, C, H, W).
        labels: int64, shape (B,).

    Returns:
        float32, shape (B,).
    """
    parts = zip(images.split(_BATCH), labels.split(_BATCH), strict=True)
    return torch.cat([_losses(network, part * 2 - 1, chosen) for part, chosen in parts])


def _losses(network: DenoisingNetwork, images: Tensor, labels: Tensor) -> Tensor:
    rates, total = signal_rates(), torch.zeros(len(images))
    for step in _STEPS:
        noise = torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(step)).expand_as(images)
        signal = rates[step]
        dirt = (1 - signal**2).sqrt()
        found = network(signal * images + dirt * noise, torch.full((len(images),), step), labels)
        total += (found - (signal * noise - dirt * images)).square().flatten(1).mean(dim=1)
    return total / len(_STEPS)
