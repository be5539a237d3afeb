"""Where bins are planted: in front of any network, or in the pinned architecture of a network with a hidden layer."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.linear_leakage.bins import Bins
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo
from federation.errors import ModelError
from federation.models import build_model

Kind = Literal["cumulative", "sparse"]
CarrierName = Literal["front", "mlp"]


class FrontPlanted(nn.Module):
    """Bins, then a layer back to the shape of an image, then the agreed network (arXiv 2110.13057, section 4).

    All columns of the second layer are alike, so that every active bin of an image has the same gradient.
    """

    def __init__(self, bins: Bins, kind: Kind, network: nn.Module, shape: tuple[int, int, int], scale: float) -> None:
        """Plant `bins` in front of `network`, which takes images of `shape` (C, H, W).

        `scale` is what the second layer multiplies the sum over all bins by.
        """
        super().__init__()
        size = math.prod(shape)
        self.bins = nn.Linear(size, len(bins))
        self.spread = nn.Linear(len(bins), size)
        self.network = network
        self.kind, self.shape = kind, shape
        fill_bins(self.bins, bins, kind)
        with torch.no_grad():
            self.spread.weight.fill_(scale)
            self.spread.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of shape (B, classes) for `images`: float32 in [0, 1], shape (B, C, H, W)."""
        hidden = self.bins(images.flatten(1))
        hidden = hidden.relu() if self.kind == "cumulative" else hidden.clamp(0, 1)
        logits: Tensor = self.network(self.spread(hidden).view(-1, *self.shape))
        return logits


def fill_bins(layer: nn.Linear, bins: Bins, kind: Kind, gain: float = 1.0) -> None:
    """Write `bins` into `layer`: row i is active for images above threshold i, or, if "sparse", at work within bin i.

    "cumulative": w_i = gain v, b_i = -gain q_i, for a ReLU. "sparse": w_i = v / width_i, b_i = -q_i / width_i, for a
    clamp to [0, 1], which passes a gradient to the one bin that the image lies in.
    """
    direction, thresholds = bins.direction, bins.thresholds
    scales = np.full(len(bins), gain)
    if kind == "sparse":
        scales = 1 / np.diff(np.append(thresholds, bins.top))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(scales[:, None] * direction))
        layer.bias.copy_(torch.from_numpy(-scales * thresholds))


def plant_in_front(
    bins: Bins, kind: Kind, info: DatasetInfo, *, model: str, seed: int, scale: float | None = None
) -> FrontPlanted:
    """Return `bins` in front of a fresh network named `model`; the sum over bins is scaled to about one by default."""
    network = build_model(ModelConfig.model_validate({"name": model}), info, seed=seed)
    shape = (info.channels, info.height, info.width)
    if scale is None:
        scale = 1 / len(bins) if kind == "sparse" else 1 / (len(bins) * float(np.ptp(bins.thresholds[1:])))
    return FrontPlanted(bins, kind, network, shape, scale)


def plant_in_mlp(bins: Bins, info: DatasetInfo, *, gain: float = 1.0, scale: float = 1e-4) -> nn.Module:
    """Return the agreed network "mlp" with its hidden layer as bins: nothing but parameters is changed.

    Row c of the output layer is constant, so that every active bin of an image has the same gradient; their signs take
    turns, so that this gradient is near zero for no class.

    Args:
        bins: as many as the network has hidden units.
        info: classes and shape of the images.
        gain: of the rows.
        scale: of the output layer; small, so that no image's loss is near zero.
    """
    wanted = ModelConfig.model_validate({"name": "mlp", "hidden-units": len(bins)})
    network = build_model(wanted, info, seed=0)
    fill_bins(linear_layer(network, "hidden"), bins, "cumulative", gain)
    levels = alternating_levels(info.classes)
    with torch.no_grad():
        output = linear_layer(network, "output")
        output.weight.copy_((scale * levels)[:, None].expand(-1, len(bins)))
        output.bias.zero_()
    return network


def alternating_levels(classes: int) -> Tensor:
    """Return 1, -1, 1, ...: float32, shape (classes,).

    The gradient of an image's bin is the mean of these by predicted probability, less that of the image's own class.
    """
    return torch.ones(classes) - 2 * (torch.arange(classes) % 2)


def linear_layer(network: nn.Module, name: str) -> nn.Linear:
    """Return the fully connected layer called `name`.

    Raises:
        ModelError: it is of another kind.
    """
    layer = network.get_submodule(name)
    if not isinstance(layer, nn.Linear):
        raise ModelError(f"Expected a fully connected layer {name!r}, found {type(layer).__name__}.")
    return layer


def place_images(layer: nn.Linear, images: Tensor) -> NDArray[np.int64]:
    """Return the bin of each image as `layer` itself computes it, -1 for none: shape (B,).

    Args:
        layer: filled by `fill_bins`.
        images: float32 in [0, 1], shape (B, C, H, W).
    """
    with torch.no_grad():
        active = layer(images.flatten(1)) > 0
    places: NDArray[np.int64] = (active.sum(dim=1) - 1).cpu().numpy()
    return places
