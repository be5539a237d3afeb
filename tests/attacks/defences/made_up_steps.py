"""Small networks and steps of local training with them, for tests of defences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attacks.defences.defence import Defence, LocalStep
from federation.datasets.image_set import Task
from federation.metrics import targets
from federation.models.mlp import Mlp
from federation.parameters import Parameters

SHAPE = (1, 3, 3)
CLASSES = 4


def make_network(*, hidden_units: int = 7, seed: int = 0) -> Mlp:
    """Return a network with one hidden layer for images of `SHAPE`."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return Mlp(SHAPE, CLASSES, hidden_units=hidden_units)


def make_step(
    network: nn.Module, *, count: int = 5, seed: int = 0, iteration: int = 0, task: Task = Task.MULTICLASS
) -> LocalStep:
    """Return a step on `count` random images; equal seeds draw equal images, labels and noise."""
    stream = torch.Generator().manual_seed(seed)
    images = torch.rand((count, *SHAPE), generator=stream)
    if task is Task.MULTILABEL:
        labels = torch.randint(2, (count, CLASSES), generator=stream)
    else:
        labels = torch.randint(CLASSES, (count,), generator=stream)
    return LocalStep(
        network=network, images=images, labels=targets(labels, task), task=task, iteration=iteration, stream=stream
    )


def gradient_of(step: LocalStep, defence: Defence) -> Parameters:
    """Return the gradient of the mean loss that `defence` trains on, by name."""
    loss = defence.losses(step.network(step.images), step.labels, step.task).mean()
    named = dict(step.network.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def flat(gradient: Parameters) -> Tensor:
    """Return all entries in order."""
    return torch.cat([value.reshape(-1) for value in gradient.values()])
