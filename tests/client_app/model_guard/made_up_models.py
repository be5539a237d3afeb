"""Fresh, trained and crafted models on phantom images, and single layers made by hand."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from attacks.guard_samples import Crafting, craft_model
from client_app.model_guard.layers import HiddenLayer
from client_app.training import train_locally
from federation.config import DataConfig, ModelConfig, TrainingConfig
from federation.datasets.image_set import Dataset
from federation.datasets.loader import load_dataset
from federation.models import build_model
from federation.parameters import write_parameters
from federation.preprocessing import to_unit_interval

CPU = torch.device("cpu")
UNITS, INPUTS, CLASSES = 200, 100, 5


@functools.cache
def phantoms(classes: int = 4) -> Dataset:
    return load_dataset(DataConfig(name="phantom", phantom_examples=300, phantom_classes=classes), seed=0)


def fresh(name: str, *, units: int = 64, classes: int = 4, seed: int = 0) -> nn.Module:
    config = ModelConfig.model_validate({"name": name, "hidden-units": units})
    return build_model(config, phantoms(classes).info, seed=seed)


def trained(name: str, *, units: int = 64, classes: int = 4, **plan: Any) -> nn.Module:
    data, model = phantoms(classes), fresh(name, units=units, classes=classes)
    settings = TrainingConfig(device="cpu", batch_size=32, **plan)
    generator = torch.Generator().manual_seed(0)
    train_locally(model, data.train, data.info, settings, generator=generator, device=CPU)
    return model


def crafted(
    name: str, crafting: Crafting, *, units: int = 64, seed: int = 0, images: Tensor | None = None
) -> nn.Module:
    model = fresh(name, units=units, seed=seed)
    if images is None:
        images = to_unit_interval(torch.from_numpy(phantoms().validation.images.copy()))
    write_parameters(model, craft_model(model, images, crafting, torch.Generator().manual_seed(seed)))
    return model


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ordinary_layer(**changes: Tensor) -> HiddenLayer:
    """Return a layer of 200 units on 100 inputs as it is initialized, but for `changes`."""
    generator = torch.Generator().manual_seed(1)
    edge = 1 / math.sqrt(INPUTS)
    fields = {
        "weight": (torch.rand(UNITS, INPUTS, generator=generator) * 2 - 1) * edge,
        "bias": (torch.rand(UNITS, generator=generator) * 2 - 1) * edge,
        "following": draw(CLASSES, UNITS, seed=2),
        "inputs": torch.rand(256, INPUTS, generator=generator),
    }
    return HiddenLayer(name="hidden", **fields | changes)


def with_rows(count: int, rows: Tensor, *, seed: int = 3) -> Tensor:
    """Return ordinary weights of which `count`, in random places, are `rows`."""
    weight = ordinary_layer().weight.clone()
    weight[torch.randperm(UNITS, generator=torch.Generator().manual_seed(seed))[:count]] = rows
    return weight
