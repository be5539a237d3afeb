"""Networks by name, with the input shape and the number of classes taken from the data.

No network here keeps batch statistics: they would travel as data-derived buffers, and they break the equivalence
of micro-batches and of per-sample gradients.
"""

from __future__ import annotations

import torch
from torch import nn

from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo
from federation.errors import ModelError
from federation.models.cnn import Cnn
from federation.models.linear import Linear
from federation.models.mlp import Mlp
from federation.models.resnet18 import ResNet18
from federation.randomness import derive_seed

__all__ = ["build_empty_model", "build_model"]

_LARGEST_MODEL = 500_000_000


def build_model(model: ModelConfig, info: DatasetInfo, *, seed: int) -> nn.Module:
    """Return a freshly initialized network.

    Args:
        model: which network.
        info: shape of the images and number of classes.
        seed: of the initialization; torch's global generator is left as it was.

    Raises:
        ModelError: the images are too small for the network, or so large that it would not fit anywhere.
    """
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in _construct(model, info).parameters())
    if size > _LARGEST_MODEL:
        raise ModelError(f"Expected at most {_LARGEST_MODEL} parameters, found {size} for images of {info}.")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, "initialization"))
        return _construct(model, info)


def build_empty_model(model: ModelConfig, info: DatasetInfo) -> nn.Module:
    """Return the network with uninitialized CPU parameters, for a caller who writes all of them; draws nothing."""
    with torch.device("meta"):
        network = _construct(model, info)
    return network.to_empty(device="cpu")


def _construct(model: ModelConfig, info: DatasetInfo) -> nn.Module:
    shape = (info.channels, info.height, info.width)
    smallest = 1 if model.name in ("mlp", "linear") else 4
    if min(info.height, info.width) < smallest:
        raise ModelError(f"Expected images of at least {smallest} x {smallest} pixels for {model.name}, found {shape}.")
    if model.name == "cnn":
        return Cnn(shape, info.classes)
    if model.name == "linear":
        return Linear(shape, info.classes)
    if model.name == "mlp":
        return Mlp(shape, info.classes, hidden_units=model.hidden_units)
    return ResNet18(shape, info.classes)
