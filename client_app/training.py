"""Local training: plain mini-batch descent on the hospital's own images, in place, on the model that was received."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from client_app.augmentation import augment
from federation.config import TrainingConfig
from federation.datasets.image_set import ImageSet, Task
from federation.metrics import criterion, targets
from federation.preprocessing import to_unit_interval


def train_locally(
    model: nn.Module,
    images: ImageSet,
    task: Task,
    plan: TrainingConfig,
    *,
    generator: torch.Generator,
    device: torch.device,
) -> None:
    """Train `model` in place by `plan`.

    The optimizer starts fresh: its state depends on private images and belongs to one update.

    Args:
        model: already on `device`.
        images: the training split, at least one image.
        task: what the labels are.
        plan: optimizer, epochs and batch size.
        generator: CPU generator for the order of images and their augmentation.
        device: where to compute.
    """
    pixels = torch.from_numpy(np.array(images.images)).to(device)
    labels = targets(torch.from_numpy(np.array(images.labels)), task).to(device)
    optimizer = make_optimizer(model.parameters(), plan)
    loss_of = criterion(task)
    model.train()
    for _ in range(plan.local_epochs):
        order = torch.randperm(len(images), generator=generator).to(device)
        for chosen in order.split(plan.batch_size):
            batch = augment(to_unit_interval(pixels[chosen]), plan.augmentation, generator)
            optimizer.zero_grad(set_to_none=True)
            loss_of(model(batch), labels[chosen]).backward()
            optimizer.step()


def make_optimizer(parameters: Iterable[Tensor], plan: TrainingConfig) -> torch.optim.Optimizer:
    """Return the local optimizer that `plan` names."""
    rate, decay = plan.learning_rate, plan.weight_decay
    if plan.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=plan.momentum, weight_decay=decay)
    kind = torch.optim.Adam if plan.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, lr=rate, weight_decay=decay)
