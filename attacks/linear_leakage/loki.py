"""LOKI: every hospital gets its own channels, so that a sum over hospitals mixes nobody's images with another's.

Zhao et al., arXiv 2303.12233. Each hospital is sent a convolution that copies its images into channels of its own and
gives zero in all others. Where activations are zero, so are gradients of weights: in the sum, the columns of each block
are one hospital's alone. What secure aggregation hides, the server takes apart by where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from attacks.attack import Plant
from attacks.linear_leakage.bins import Bins, ThresholdRule, make_bins
from attacks.linear_leakage.planted_network import fill_bins
from attacks.linear_leakage.read_out import Moved, read_bins
from attacks.threat_model import Control, Needs, ServerView
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo
from federation.errors import DataError
from federation.models import build_model
from federation.parameters import Parameters

Layout = Literal["blocks", "dense"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loki:
    """Sparse bins behind channels that only one hospital uses (arXiv 2303.12233).

    The scaling factor s multiplies what the convolution copies and divides the weights of the bins. An image changes
    nothing but what its own bin computes, by s^2 lr |c| <x, x'> for another image x'. With a great s that throws the
    bin so far out of its range that later images miss it, and it keeps what the first step wrote: local training of
    several steps leaks like its first sight of each image. Gradients do not depend on s but for a factor.

    "dense" is the network of the paper, with a layer as wide as all blocks together. "blocks" sends a hospital its own
    block only, under names that no other hospital has; all other columns of its gradient would be zero. The sum by name
    holds the same numbers.

    Deviation: the scale of a candidate comes from the middle of its bin. The paper's code takes absolute values and
    stretches each candidate to [0, 1], which loses contrast. It takes s = 500 with weights of 1000 behind the bins;
    here these are small, and s is great instead.

    Attributes:
        clients: hospitals, N. There are N * capacity candidates, those of hospital z from z * capacity.
        capacity: bins per hospital, k.
        csf: the convolutional scaling factor s.
        layout: see above.
        model: network behind the bins.
        rule: how thresholds are set.
        scale: of the layer behind the bins; None makes its output about one.
        seed: of the network behind the bins.
        name: unique.
        source: where it is from.
    """

    clients: int
    capacity: int = 256
    csf: float = 1e6
    layout: Layout = "blocks"
    model: Literal["cnn", "mlp", "resnet18"] = "cnn"
    rule: ThresholdRule = "gaussian"
    scale: float | None = None
    seed: int = 0
    name: str = "loki"
    source: str = "arXiv 2303.12233"

    @property
    def needs(self) -> Needs:
        """What it cannot do without."""
        controls = frozenset[Control]({"architecture", "model-per-client"})
        return Needs(controls=controls, knows=frozenset({"auxiliary"}), sees="aggregate")

    def begin(self, view: ServerView) -> LokiCampaign:
        """Return a campaign with bins for images like the server's.

        Raises:
            DataError: there are no auxiliary images, or no hospitals.
        """
        if self.clients < 1:
            raise DataError(f"Expected at least 1 client, found {self.clients}.")
        return LokiCampaign(attack=self, info=view.info, bins=make_bins(view, self.capacity, rule=self.rule))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LokiCampaign:
    """One round, in which every hospital is sent another network.

    Attributes:
        attack: what is done.
        info: classes and shape of the images.
        bins: of every hospital.
    """

    attack: Loki
    info: DatasetInfo
    bins: Bins

    def craft(self, client: int, round_number: int) -> Plant:
        """Return the network with the channels of `client`; it is the same in every round.

        Raises:
            DataError: the attack was planned for fewer hospitals.
        """
        del round_number
        if not 0 <= client < self.attack.clients:
            raise DataError(f"Expected a client from 0 to {self.attack.clients - 1}, found {client}.")
        network: PlantedNetwork
        if self.attack.layout == "blocks":
            network = BlockNetwork(self.attack, self.bins, self.info, client)
        else:
            network = DenseNetwork(self.attack, self.bins, self.info, client)

        def place(images: Tensor) -> NDArray[np.int64]:
            with torch.no_grad():
                bins = (network.measure(images) > 0).sum(dim=1).cpu().numpy() - 1
            places: NDArray[np.int64] = client * self.attack.capacity + bins
            return places

        return Plant(network=network, place=place)

    def read(self, sent: Sequence[Parameters]) -> NDArray[np.float64]:
        """Return N * k candidates from the sum over hospitals, NaN for the blocks of those that did not answer."""
        capacity, size = len(self.bins), len(self.bins.direction)
        found = np.full((self.attack.clients * capacity, size), np.nan)
        for client in range(self.attack.clients):
            weight = self._block_of(sent[0], client)
            if weight is not None:
                moved = Moved.of(weight, sent[0]["bias"])
                found[client * capacity :][:capacity] = read_bins(moved, self.bins, "sparse", by="direction")
        return found.reshape(-1, self.info.channels, self.info.height, self.info.width)

    def _block_of(self, moved: Parameters, client: int) -> Tensor | None:
        if self.attack.layout == "blocks":
            return moved.get(f"blocks.{_key(client)}")
        size = len(self.bins.direction)
        return moved["weight"][:, client * size : (client + 1) * size]


class PlantedNetwork(nn.Module):
    """What both layouts share: bins with a common bias, a layer back to an image, and the agreed network."""

    def __init__(self, attack: Loki, bins: Bins, info: DatasetInfo) -> None:
        """Build everything but the block."""
        super().__init__()
        self.shape = (info.channels, info.height, info.width)
        planted = nn.Linear(math.prod(self.shape), len(bins))
        fill_bins(planted, bins, "sparse")
        self.bias = nn.Parameter(planted.bias.detach())
        self.spread = nn.Linear(len(bins), math.prod(self.shape))
        self.network = build_model(ModelConfig.model_validate({"name": attack.model}), info, seed=attack.seed)
        with torch.no_grad():
            self.spread.weight.fill_(1 / len(bins) if attack.scale is None else attack.scale)
            self.spread.bias.zero_()
        self._planted = planted.weight.detach() / attack.csf

    def measure(self, images: Tensor) -> Tensor:
        """Return what the bins are given, shape (B, k): in (0, 1) where an image lies in the bin, more above it."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of shape (B, classes) for `images`: float32 in [0, 1], shape (B, C, H, W)."""
        logits: Tensor = self.network(self.spread(self.measure(images).clamp(0, 1)).view(-1, *self.shape))
        return logits


class BlockNetwork(PlantedNetwork):
    """The block of one hospital, under names that no other hospital has."""

    def __init__(self, attack: Loki, bins: Bins, info: DatasetInfo, client: int) -> None:
        """Plant `bins` for the hospital number `client`."""
        super().__init__(attack, bins, info)
        self._client = _key(client)
        self.kernels = nn.ParameterDict({self._client: _copying(info.channels, attack.csf)})
        self.blocks = nn.ParameterDict({self._client: self._planted})

    def measure(self, images: Tensor) -> Tensor:
        """Return what the bins are given, shape (B, k)."""
        channels = functional.conv2d(images, self.kernels[self._client], padding=1).relu()
        return functional.linear(channels.flatten(1), self.blocks[self._client], self.bias)


class DenseNetwork(PlantedNetwork):
    """All blocks, of which the convolution fills that of one hospital, as in the paper: for few hospitals."""

    def __init__(self, attack: Loki, bins: Bins, info: DatasetInfo, client: int) -> None:
        """Plant `bins` for the hospital number `client` among all."""
        super().__init__(attack, bins, info)
        kernel = torch.zeros(attack.clients * info.channels, info.channels, 3, 3)
        kernel[client * info.channels :][: info.channels] = _copying(info.channels, attack.csf)
        self.kernel = nn.Parameter(kernel)
        self.weight = nn.Parameter(self._planted.repeat(1, attack.clients))

    def measure(self, images: Tensor) -> Tensor:
        """Return what the bins are given, shape (B, k)."""
        channels = functional.conv2d(images, self.kernel, padding=1).relu()
        return functional.linear(channels.flatten(1), self.weight, self.bias)


def _copying(channels: int, csf: float) -> Tensor:
    """Return a 3x3 kernel that copies every channel, times `csf`: shape (C, C, 3, 3)."""
    kernel = torch.zeros(channels, channels, 3, 3)
    kernel[:, :, 1, 1] = csf * torch.eye(channels)
    return kernel


def _key(client: int) -> str:
    return f"{client:03d}"
