"""One shot: one narrow bin around one quantile, which takes a single image out of a sum over any number of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.attack import Plant
from attacks.linear_leakage.bins import Bins, DirectionName, ThresholdRule, make_bins
from attacks.linear_leakage.planted_network import (
    CarrierName,
    FrontPlanted,
    Kind,
    linear_layer,
    place_images,
    plant_in_mlp,
)
from attacks.linear_leakage.read_out import Moved, Normalisation, read_bins
from attacks.threat_model import Needs, ServerView
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo
from federation.errors import DataError
from federation.models import build_model
from federation.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShot:
    """Two rows around one quantile, between which 1 / `images` of all images lie (arXiv 2110.13057, section 4.3).

    One image of all lies there alone with a probability of (1 - 1 / images)^(images - 1), about 1 / e. It is read out
    of the sum over all hospitals, however many images that sums over: only rounding limits them.

    Attributes:
        images: in the sum, as the server guesses, at least 4.
        level: the quantile around which the bin lies, in (0, 1).
        carrier: "mlp" needs no other architecture.
        kind: of the rows; the "mlp" has rectified units, so that there they are "cumulative".
        hidden_units: of the agreed "mlp"; all but two are out of every image's reach.
        direction: in which images are measured.
        rule: how the thresholds are set.
        model: network behind the rows, where they stand in front.
        gain: of the rows of an "mlp".
        scale: of the layer behind; None takes the usual one.
        by: what gives the candidate its scale.
        seed: of the network behind.
        name: unique.
        source: where it is from.
    """

    images: int
    level: float = 0.5
    carrier: CarrierName = "front"
    kind: Kind = "cumulative"
    hidden_units: int = 64
    direction: DirectionName = "mean"
    rule: ThresholdRule = "gaussian"
    model: Literal["cnn", "mlp", "resnet18"] = "cnn"
    gain: float = 1.0
    scale: float | None = None
    by: Normalisation = "bias"
    seed: int = 0
    name: str = "one-shot"
    source: str = "arXiv 2110.13057, section 4.3"

    @property
    def needs(self) -> Needs:
        """What it cannot do without."""
        return Needs(
            controls=frozenset({"parameters" if self.carrier == "mlp" else "architecture"}),
            knows=frozenset({"auxiliary", "generator"} if self.direction == "learned" else {"auxiliary"}),
            sees="aggregate",
        )

    def begin(self, view: ServerView) -> OneShotCampaign:
        """Return a campaign with one bin.

        Raises:
            DataError: images that are needed are not there, or a setting is out of range.
        """
        if self.images < 4 or not 0 < self.level < 1 or self.hidden_units < 2:
            raise DataError(
                f"Expected images={self.images} >= 4, 0 < level={self.level} < 1 and "
                f"hidden_units={self.hidden_units} >= 2."
            )
        if self.carrier == "mlp" and self.kind == "sparse":
            raise DataError('Expected kind="cumulative" with carrier="mlp": its units are rectified, not clamped.')
        return OneShotCampaign(attack=self, info=view.info, bins=self._aim(view))

    def _aim(self, view: ServerView) -> Bins:
        """Return two thresholds around the quantile, and beyond them, in an "mlp", some that no image reaches."""
        even = make_bins(view, self.images, direction=self.direction, rule=self.rule)
        number = min(max(round(self.level * self.images), 1), self.images - 2)
        chosen = even.thresholds[number : number + 2]
        idle = self.hidden_units - 2 if self.carrier == "mlp" else 0
        step = even.top - float(chosen[0])
        return replace(even, thresholds=np.append(chosen, even.top + step * np.arange(1, idle + 1)))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OneShotCampaign:
    """One round with the same rows for every hospital.

    Attributes:
        attack: what is done.
        info: classes and shape of the images.
        bins: of which the first is the target.
    """

    attack: OneShot
    info: DatasetInfo
    bins: Bins

    def craft(self, client: int, round_number: int) -> Plant:
        """Return the network with the rows."""
        del client, round_number
        attack = self.attack
        if attack.carrier == "mlp":
            scale = 1e-4 if attack.scale is None else attack.scale
            network = plant_in_mlp(self.bins, self.info, gain=attack.gain, scale=scale)
        else:
            network = self._plant_in_front()
        layer = linear_layer(network, self._layer)

        def place(images: Tensor) -> NDArray[np.int64]:
            return np.where(place_images(layer, images) == 0, 0, -1).astype(np.int64)

        return Plant(network=network, place=place)

    def read(self, sent: Sequence[Parameters]) -> NDArray[np.float64]:
        """Return one candidate, NaN where no image lies in the bin."""
        moved = Moved.of(sent[0][f"{self._layer}.weight"], sent[0][f"{self._layer}.bias"])
        found = read_bins(moved, self.bins, self.attack.kind, by=self.attack.by)[:1]
        return found.reshape(1, self.info.channels, self.info.height, self.info.width)

    @property
    def _layer(self) -> str:
        return "hidden" if self.attack.carrier == "mlp" else "bins"

    def _plant_in_front(self) -> nn.Module:
        attack, info = self.attack, self.info
        reach = self.bins.top - float(self.bins.thresholds[0])
        usual = 0.5 if attack.kind == "sparse" else 1 / (2 * reach)
        network = build_model(ModelConfig.model_validate({"name": attack.model}), info, seed=attack.seed)
        shape = (info.channels, info.height, info.width)
        return FrontPlanted(self.bins, attack.kind, network, shape, usual if attack.scale is None else attack.scale)
