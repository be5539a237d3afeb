"""Hospitals of random images, and what they would send, for the tests of attacks."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from attacks.threat_model import ServerView
from federation.datasets.image_set import DatasetInfo, Task
from federation.parameters import Parameters


def make_info(*, channels: int = 1, side: int = 8, classes: int = 3) -> DatasetInfo:
    """Return the description of a made-up data set."""
    names = tuple(f"class-{number}" for number in range(classes))
    return DatasetInfo(
        name="made-up", task=Task.MULTICLASS, class_names=names, channels=channels, height=side, width=side
    )


def make_images(count: int, seed: int, info: DatasetInfo) -> NDArray[np.float32]:
    """Return random images in [0, 1], whose brightness differs as that of photographs does."""
    stream = np.random.default_rng(seed)
    levels = stream.uniform(0.2, 1.0, (count, 1, 1, 1))
    noise = stream.random((count, info.channels, info.height, info.width))
    return (levels * noise).astype(np.float32)


def make_view(info: DatasetInfo, *, auxiliary: int = 200, seed: int = 99) -> ServerView:
    """Return a server's view with auxiliary images, none of which a hospital has."""
    return ServerView(info=info, stream=np.random.default_rng(seed), auxiliary=make_images(auxiliary, seed, info))


def gradients_of(network: nn.Module, images: NDArray[np.float32], labels: NDArray[np.int64]) -> Parameters:
    """Return the gradient of the mean cross-entropy by parameter name."""
    network.zero_grad()
    functional.cross_entropy(network(torch.from_numpy(images)), torch.from_numpy(labels)).backward()
    gradients = {name: value.grad for name, value in network.named_parameters()}
    return {name: value.clone() for name, value in gradients.items() if value is not None}


def train(
    network: nn.Module, images: NDArray[np.float32], labels: NDArray[np.int64], *, rate: float, batch: int
) -> Parameters:
    """Train `network` for one epoch of plain descent; return parameters before minus parameters after."""
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    for start in range(0, len(images), batch):
        part = slice(start, start + batch)
        optimizer.zero_grad()
        functional.cross_entropy(network(torch.from_numpy(images[part])), torch.from_numpy(labels[part])).backward()
        optimizer.step()
    return {name: before[name] - value.detach() for name, value in network.named_parameters()}


def sum_by_name(parts: list[Parameters]) -> Parameters:
    """Return the sum over hospitals; a name that one lacks counts as zero."""
    total: Parameters = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
