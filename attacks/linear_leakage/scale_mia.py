"""Scale-MIA: bins over what the convolutions see, and a decoder that makes images of it (arXiv 2311.05808).

Only parameters of the agreed architecture are of the server's making. Read `autoencoder` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attacks.attack import Plant
from attacks.linear_leakage.autoencoder import Autoencoder, decode_all, encode_all, train_autoencoder
from attacks.linear_leakage.bins import Bins, ThresholdRule, make_bins
from attacks.linear_leakage.planted_network import alternating_levels, fill_bins, linear_layer, place_images
from attacks.linear_leakage.read_out import Moved, Normalisation, read_bins
from attacks.threat_model import Needs, ServerView
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo
from federation.models import build_model
from federation.parameters import Parameters

_CAPACITY = 512  # Hidden units of the agreed "cnn".


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleMia:
    """512 bins in the hidden layer of the agreed "cnn", of the mean of what its convolutions give (arXiv 2311.05808).

    The bins are shared: where the server sees a sum over hospitals, all their images compete for them.

    Deviation: rows of the output layer are constant, scale and -scale in turn, where the paper plants layers
    of its own; the learning rate of the autoencoder falls to zero.

    Attributes:
        folder: where the autoencoder is kept; one per data set.
        steps: that the autoencoder is trained for, minutes on a CPU.
        gain: of the rows of the hidden layer; small, because parameters are rounded relative to their size, while
            their gradients do not shrink with them. That is what a difference of parameters is read by.
        scale: of the output layer. The greater it is against the gain, the less rounding hides, and the further rows
            drift out of their bins over several local steps.
        rule: how thresholds are set.
        by: what gives a latent its scale.
        seed: of the autoencoder.
        name: unique.
        source: where it is from.
    """

    folder: Path
    steps: int = 3000
    gain: float = 1e-2
    scale: float = 1e-2
    rule: ThresholdRule = "gaussian"
    by: Normalisation = "bias"
    seed: int = 0
    name: str = "scale-mia"
    source: str = "arXiv 2311.05808, section 4"

    @property
    def needs(self) -> Needs:
        """What it cannot do without."""
        return Needs(controls=frozenset({"parameters"}), knows=frozenset({"auxiliary"}), sees="aggregate")

    def begin(self, view: ServerView) -> ScaleMiaCampaign:
        """Return a campaign with a trained autoencoder and bins over its latents.

        Raises:
            DataError: there are no auxiliary images, or the folder holds an autoencoder of others.
        """
        auxiliary = view.require_auxiliary()
        autoencoder = train_autoencoder(auxiliary, view.info, self.folder, steps=self.steps, seed=self.seed)
        latents = encode_all(autoencoder, auxiliary)
        bins = make_bins(replace(view, auxiliary=latents), _CAPACITY, direction="mean", rule=self.rule)
        return ScaleMiaCampaign(attack=self, info=view.info, autoencoder=autoencoder, bins=bins)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScaleMiaCampaign:
    """One round with the same parameters for every hospital.

    Attributes:
        attack: what is done.
        info: classes and shape of the images.
        autoencoder: trained.
        bins: over latents.
    """

    attack: ScaleMia
    info: DatasetInfo
    autoencoder: Autoencoder
    bins: Bins

    def craft(self, client: int, round_number: int) -> Plant:
        """Return the agreed network with the encoder, the bins and constant rows of the output layer."""
        del client, round_number
        network = build_model(ModelConfig.model_validate({"name": "cnn"}), self.info, seed=self.attack.seed)
        network.get_submodule("features").load_state_dict(self.autoencoder.encoder.state_dict())
        layer, output = linear_layer(network, "hidden"), linear_layer(network, "output")
        fill_bins(layer, self.bins, "cumulative", self.attack.gain)
        with torch.no_grad():
            levels = self.attack.scale * alternating_levels(self.info.classes)
            output.weight.copy_(levels[:, None].expand(-1, _CAPACITY))
            output.bias.zero_()

        def place(images: Tensor) -> NDArray[np.int64]:
            with torch.no_grad():
                return place_images(layer, self.autoencoder.encode(images))

        return Plant(network=network, place=place)

    def read(self, sent: Sequence[Parameters]) -> NDArray[np.float64]:
        """Return 512 candidates, decoded, NaN where a bin is empty."""
        moved = Moved.of(sent[0]["hidden.weight"], sent[0]["hidden.bias"])
        return decode_all(self.autoencoder, read_bins(moved, self.bins, "cumulative", by=self.attack.by))

    def reconstruct(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return `images` as the autoencoder gives them back: the ceiling of this attack, were all latents exact.

        Args:
            images: float32 in [0, 1], shape (B, C, H, W), none of them auxiliary.
        """
        return decode_all(self.autoencoder, encode_all(self.autoencoder, images).astype(np.float64))
