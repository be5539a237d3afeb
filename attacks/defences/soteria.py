"""Soteria: the gradient of one fully connected layer leaves without the features that say most about the input."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attacks.defences.defence import Defence, LocalStep
from attacks.defences.representation import find_last_layer, read_input
from federation.errors import ModelError
from federation.parameters import Parameters

_ROUNDING = 1e-9


def score_features(network: nn.Module, layer: str, images: Tensor) -> Tensor:
    """Return the sum over images of ||dr_f / dx|| / |r_f|, shape (features,); r is what `layer` is given.

    The inverse approximates what Soteria maximizes, |r_f (dr_f / dx)^-1|: a low score means that setting r_f to zero
    changes the reconstructed input most. One backward pass per feature. An image whose feature is zero and does not
    move, as behind a ReLU, adds nothing; a feature that is zero for every image scores infinity, for without it
    nothing changes.

    Args:
        network: images must not influence each other.
        layer: dotted name of a fully connected layer.
        images: float32 in [0, 1], shape (B, C, H, W).
    """
    pixels = images.detach().clone().requires_grad_()
    features = read_input(network, layer, pixels)
    norms = torch.empty_like(features, requires_grad=False)
    for index in range(features.shape[1]):
        (moved,) = torch.autograd.grad(features[:, index].sum(), pixels, retain_graph=True)
        norms[:, index] = moved.flatten(1).norm(dim=1)
    sizes = features.detach().abs()
    scores = torch.where((sizes == 0) & (norms == 0), 0, norms / sizes).sum(dim=0)
    return scores.masked_fill((sizes == 0).all(dim=0), math.inf)


@dataclass(frozen=True, kw_only=True)
class Soteria(Defence):
    """Sun et al., arXiv 2012.06043 (CVPR 2021), with an L0 budget of `share` of the features.

    What it changes is one layer's weight gradient: it protects nothing against bins in front of that layer, nor
    against whoever leaves that layer out.

    Deviation: exactly floor(share * features) columns, where the authors' code takes what lies below a percentile.

    Attributes:
        share: of the features whose columns are set to zero, in [0, 1].
        layer: dotted name of the defended fully connected layer; "": the last one.
    """

    share: float = 0.5
    layer: str = ""

    @property
    def name(self) -> str:
        """Soteria with the share in percent, and the layer where it is not the last one."""
        return f"soteria-{100 * self.share:g}" + (f"-{self.layer}" if self.layer else "")

    @property
    def source(self) -> str:
        """The paper."""
        return "arXiv 2012.06043"

    def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
        """Return `gradient` with the columns of the features that score lowest set to zero in the defended layer.

        Raises:
            ModelError: there is no such layer, or no gradient of it.
        """
        layer = self.layer or find_last_layer(step.network)
        weight = f"{layer}.weight"
        if weight not in gradient:
            raise ModelError(f"Expected a gradient of {weight!r}, found {sorted(gradient)[:5]}.")
        scores = score_features(step.network, layer, step.images)
        dropped = scores.argsort(stable=True)[: math.floor(self.share * len(scores) + _ROUNDING)]
        protected = super().protect(gradient, step)
        protected[weight][:, dropped] = 0
        return protected
