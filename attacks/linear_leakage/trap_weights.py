"""Trap weights: random rows that hardly ever are active, and then for one image alone (arXiv 2112.02918)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.attack import Plant
from attacks.linear_leakage.planted_network import CarrierName, linear_layer
from attacks.linear_leakage.read_out import Moved
from attacks.linear_leakage.rows import place_alone, read_rows
from attacks.threat_model import Needs, ServerView
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo
from federation.errors import DataError
from federation.models import build_model
from federation.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class TrapWeights:
    """Rows with random halves of negative and of slightly smaller positive weights (arXiv 2112.02918, section 5).

    Which image a row is active for is chance, and so the place of an image depends on the others: a plant's `place`
    gives the first row in which it alone of the images handed over is active, and -1 where there is none.

    Deviation: the paper tries factors by hand, 0.95 to 0.99. Without a factor, the one is taken at which a row is
    active for `share` of the auxiliary images, on average over rows.

    Attributes:
        capacity: rows, k. In front of a convolutional network, or as many hidden units of the agreed "mlp".
        carrier: "mlp" needs no other architecture.
        factor: of positive weights against negative ones; None takes it from auxiliary images.
        share: of images for which a row shall be active, on average. Much more than one in a batch: rows share their
            taste, most like the same few images, and only a rarer one is active for another image alone.
        spread: standard deviation of the normal distribution whose absolute values are the weights.
        model: network behind the rows, where they stand in front.
        seed: of everything else in the network.
        name: unique.
        source: where it is from.
    """

    capacity: int = 1024
    carrier: CarrierName = "mlp"
    factor: float | None = None
    share: float = 1 / 8
    spread: float = 0.1
    model: Literal["cnn", "mlp", "resnet18"] = "cnn"
    seed: int = 0
    name: str = "trap-weights"
    source: str = "arXiv 2112.02918, section 5"

    @property
    def needs(self) -> Needs:
        """What it cannot do without."""
        return Needs(
            controls=frozenset({"parameters" if self.carrier == "mlp" else "architecture"}),
            knows=frozenset({"auxiliary"} if self.factor is None else ()),
        )

    def begin(self, view: ServerView) -> TrapCampaign:
        """Return a campaign with freshly drawn rows.

        Raises:
            DataError: there are no auxiliary images and no factor, or a number is out of range.
        """
        if self.capacity < 1 or not 0 < self.share < 1 or (self.factor is not None and self.factor <= 0):
            raise DataError(
                f"Expected capacity={self.capacity} >= 1, 0 < share={self.share} < 1 and factor={self.factor} > 0."
            )
        return TrapCampaign(attack=self, info=view.info, rows=_draw_rows(self, view))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrapCampaign:
    """One round with the same rows for every hospital.

    Attributes:
        attack: what is done.
        info: classes and shape of the images.
        rows: float32, shape (k, n).
    """

    attack: TrapWeights
    info: DatasetInfo
    rows: NDArray[np.float32]

    def craft(self, client: int, round_number: int) -> Plant:
        """Return the network with the rows."""
        del client, round_number
        if self.attack.carrier == "mlp":
            wanted = ModelConfig.model_validate({"name": "mlp", "hidden-units": self.attack.capacity})
            network = build_model(wanted, self.info, seed=self.attack.seed)
        else:
            network = FrontTrapped(self.attack, self.info)
        layer = linear_layer(network, self._layer)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(self.rows))
            layer.bias.zero_()

        def place(images: Tensor) -> NDArray[np.int64]:
            return place_alone(layer, images)

        return Plant(network=network, place=place)

    def read(self, sent: Sequence[Parameters]) -> NDArray[np.float64]:
        """Return k candidates, NaN where a row was not active or repeats an earlier one."""
        moved = Moved.of(sent[0][f"{self._layer}.weight"], sent[0][f"{self._layer}.bias"])
        return read_rows(moved).reshape(-1, self.info.channels, self.info.height, self.info.width)

    @property
    def _layer(self) -> str:
        return "hidden" if self.attack.carrier == "mlp" else "traps"


class FrontTrapped(nn.Module):
    """Rows, then a random layer back to the shape of an image, then the agreed network."""

    def __init__(self, attack: TrapWeights, info: DatasetInfo) -> None:
        """Build the network for images of `info`; the rows are written by the caller."""
        super().__init__()
        self.shape = (info.channels, info.height, info.width)
        size = math.prod(self.shape)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(attack.seed)
            self.traps = nn.Linear(size, attack.capacity)
            self.spread = nn.Linear(attack.capacity, size)
        self.network = build_model(ModelConfig.model_validate({"name": attack.model}), info, seed=attack.seed)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of shape (B, classes) for `images`: float32 in [0, 1], shape (B, C, H, W)."""
        hidden = self.spread(self.traps(images.flatten(1)).relu()).view(-1, *self.shape)
        logits: Tensor = self.network(hidden)
        return logits


def _draw_rows(attack: TrapWeights, view: ServerView) -> NDArray[np.float32]:
    """Return rows of which a random half is -|N(0, spread)| and the other the factor times such: shape (k, n)."""
    size = view.info.channels * view.info.height * view.info.width
    magnitudes = np.abs(view.stream.normal(0, attack.spread, (attack.capacity, size)))
    order = view.stream.permuted(np.broadcast_to(np.arange(size), magnitudes.shape), axis=1)
    negative = order < size // 2
    downs, ups = np.where(negative, magnitudes, 0), np.where(negative, 0, magnitudes)
    factor = (
        _find_factor(downs, ups, view.require_auxiliary(), attack.share) if attack.factor is None else attack.factor
    )
    return (factor * ups - downs).astype(np.float32)


def _find_factor(
    downs: NDArray[np.float64], ups: NDArray[np.float64], auxiliary: NDArray[np.float32], share: float
) -> float:
    """Return the factor at which pairs of row and image are active in `share` of all cases.

    A row is active where factor * <ups, x> > <downs, x>, that is, where the ratio of both lies below the factor.
    """
    flat = auxiliary.reshape(len(auxiliary), -1).astype(np.float64)
    lit = flat[flat.any(axis=1)]
    ratios = (lit @ downs.T) / np.maximum(lit @ ups.T, np.finfo(np.float32).tiny)
    return float(np.quantile(ratios, share))
