"""Streams and small data sets with which a test decides who is sampled, how much noise falls, and what is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from client_app.dp_sgd import train_with_dp_sgd
from client_app.noise.source import NoiseSource
from federation.accounting.events import SampledGaussianRelease
from federation.config import PrivacyConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet, Task

CPU = torch.device("cpu")


class Silent:
    """Draws no noise, and the same number for everybody: 0 samples all, 1 samples nobody unless all are."""

    def __init__(self, drawn: float = 0.0) -> None:
        self.drawn = drawn
        self.stddevs: list[float] = []

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        self.stddevs.append(stddev)
        return torch.zeros(shape, device=device)

    def uniform(self, count: int) -> Tensor:
        return torch.full((count,), self.drawn, dtype=torch.float64)


class Seeded:
    """Draws noise and samples from a generator of its own, and remembers how."""

    def __init__(self, seed: int, *, loud: bool = True) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.loud = loud
        self.stddevs: list[float] = []
        self.drawn: list[Tensor] = []

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        self.stddevs.append(stddev)
        return torch.randn(shape, generator=self.generator).to(device) * (stddev if self.loud else 0.0)

    def uniform(self, count: int) -> Tensor:
        self.drawn.append(torch.rand(count, generator=self.generator, dtype=torch.float64))
        return self.drawn[-1]


class Linear(nn.Module):
    """A linear model with fixed first values."""

    def __init__(self, pixels: int = 36, classes: int = 3) -> None:
        super().__init__()
        self.output = nn.Linear(pixels, classes)
        with torch.no_grad():
            self.output.weight.copy_(torch.randn(classes, pixels, generator=torch.Generator().manual_seed(0)) / 10)
            self.output.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(images.flatten(1))
        return logits


def describe(images: ImageSet, *, classes: int = 3) -> DatasetInfo:
    """Return what `images` are."""
    _, channels, height, width = images.images.shape
    task = Task.MULTICLASS if images.labels.ndim == 1 else Task.MULTILABEL
    names = tuple(map(str, range(classes)))
    return DatasetInfo(name="toy", task=task, class_names=names, channels=channels, height=height, width=width)


def train(
    model: nn.Module,
    images: ImageSet,
    noise: NoiseSource,
    *,
    plan: dict[str, Any] | None = None,
    noise_multiplier: float = 1.0,
    seed: int = 0,
    classes: int = 3,
    **privacy: Any,
) -> SampledGaussianRelease:
    """Train `model` by one full step of SGD at rate 1, unless `plan` says otherwise."""
    settings: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 1.0, "batch_size": max(len(images), 1)}
    return train_with_dp_sgd(
        model,
        images,
        describe(images, classes=classes),
        TrainingConfig(**settings | (plan or {})),
        PrivacyConfig(mechanism="dp-sgd", **privacy),
        noise_multiplier=noise_multiplier,
        noise=noise,
        generator=torch.Generator().manual_seed(seed),
        device=CPU,
    )


def flat(model: nn.Module) -> Tensor:
    """Return a copy of all parameters in one vector."""
    return torch.cat([value.detach().clone().flatten() for value in model.parameters()])


def images_of_patients(patients: list[int], *, seed: int = 0, size: int = 6) -> ImageSet:
    """Return one random image per entry of `patients`."""
    stream = np.random.default_rng(seed)
    images = stream.integers(0, 256, (len(patients), 1, size, size), dtype=np.uint8)
    return ImageSet(images=images, labels=stream.integers(0, 3, len(patients)), patients=np.array(patients))
