"""Opacus as it comes: the baseline that DP-SGD is timed against. It draws predictable noise and never ships."""

from __future__ import annotations

import time
import warnings

import torch
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def time_stock_epoch(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    batch_size: int,
    learning_rate: float,
    noise_multiplier: float,
    clip_norm: float,
    mode: str,
) -> tuple[float, int]:
    """Train `model` for one epoch of Poisson samples and return the seconds it took and the number of its steps.

    Args:
        model: fresh; Opacus wraps it.
        images: uint8, shape (N, C, H, W).
        labels: class indices, shape (N,).
        batch_size: expected images per step.
        learning_rate: of Adam.
        noise_multiplier: standard deviation of the noise over the clip norm.
        clip_norm: C.
        mode: "hooks" or "ghost".
    """
    loader = DataLoader(TensorDataset(images, labels), batch_size=batch_size)
    with warnings.catch_warnings():
        # Opacus warns of its predictable generator, and torch of how Opacus hooks the first layer.
        warnings.simplefilter("ignore")
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=learning_rate),
            criterion=nn.CrossEntropyLoss(),
            data_loader=loader,
            noise_multiplier=noise_multiplier,
            max_grad_norm=clip_norm,
            grad_sample_mode=mode,
            poisson_sampling=True,
        )
        network, optimizer, loader = made[0], made[1], made[-1]
        loss_of = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
        started, steps = time.perf_counter(), 0
        for batch, targets in loader:
            optimizer.zero_grad(set_to_none=True)
            loss_of(network(batch.float().div_(255)), targets).backward()
            optimizer.step()
            steps += 1
        return time.perf_counter() - started, steps
