"""Analytic inversion: an honest network's first layer, read as it comes.

Phong et al., IEEE TIFS 13, 2018, 1333-1345; Geiping et al., arXiv 2003.14053, proposition 3.1. The server sends nothing
of its own making. One image alone is read exactly; of a batch, what single units saw alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attacks.attack import Plant
from attacks.linear_leakage.planted_network import linear_layer
from attacks.linear_leakage.read_out import Moved
from attacks.linear_leakage.rows import place_alone, read_rows
from attacks.threat_model import Needs, ServerView
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo
from federation.models import build_model
from federation.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticInversion:
    """The images of an "mlp" from the gradient of its hidden layer (arXiv 2003.14053, proposition 3.1).

    Which image a unit sees alone depends on the others, and so does a plant's `place`.

    Attributes:
        hidden_units: of the agreed "mlp", each of which gives a candidate.
        seed: of the initialization.
        name: unique.
        source: where it is from.
    """

    hidden_units: int = 64
    seed: int = 0
    name: str = "analytic-inversion"
    source: str = "arXiv 2003.14053, proposition 3.1"

    @property
    def needs(self) -> Needs:
        """Nothing: every server sees a hospital's update."""
        return Needs()

    def begin(self, view: ServerView) -> AnalyticCampaign:
        """Return a campaign; it takes nothing but the shape of the images."""
        return AnalyticCampaign(attack=self, info=view.info)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticCampaign:
    """One round of what every server does.

    Attributes:
        attack: what is done.
        info: classes and shape of the images.
    """

    attack: AnalyticInversion
    info: DatasetInfo

    def craft(self, client: int, round_number: int) -> Plant:
        """Return a freshly initialized network, the same for all."""
        del client, round_number
        wanted = ModelConfig.model_validate({"name": "mlp", "hidden-units": self.attack.hidden_units})
        network = build_model(wanted, self.info, seed=self.attack.seed)
        layer = linear_layer(network, "hidden")

        def place(images: Tensor) -> NDArray[np.int64]:
            return place_alone(layer, images)

        return Plant(network=network, place=place)

    def read(self, sent: Sequence[Parameters]) -> NDArray[np.float64]:
        """Return one candidate a hidden unit, NaN where it was not active or repeats an earlier one."""
        moved = Moved.of(sent[0]["hidden.weight"], sent[0]["hidden.bias"])
        return read_rows(moved).reshape(-1, self.info.channels, self.info.height, self.info.width)
