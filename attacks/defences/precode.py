"""PRECODE: a variational bottleneck in front of the last layer, so that the gradient depends on a draw."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from attacks.defences.defence import Defence
from attacks.defences.representation import find_last_layer
from attacks.linear_leakage.planted_network import linear_layer
from federation.errors import ModelError

T = TypeVar("T")


class Shared(Generic[T]):
    """A value that copies of a network share: a copy that drew again what its original drew would not be random."""

    def __init__(self, value: T) -> None:
        """Hold `value`."""
        self.value = value

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Self:
        return self


class VariationalBottleneck(nn.Module):
    """From features to a normal distribution, from a draw of it back to as many features (arXiv 2108.04725, section 4).

    It draws in evaluation, too, as in the authors' code.
    """

    def __init__(self, features: int, latent: int, stream: torch.Generator, divergences: Shared[Tensor | None]) -> None:
        """Build both layers.

        Args:
            features: in and out.
            latent: dimensions of the distribution.
            stream: of the draws.
            divergences: where a forward pass with gradients leaves its divergences, shape (B,), in nats.
        """
        super().__init__()
        self.encode = nn.Linear(features, 2 * latent)
        self.decode = nn.Linear(latent, features)
        self._stream = Shared(stream)
        self._divergences = divergences

    def forward(self, features: Tensor) -> Tensor:
        """Return a decoded draw for `features`: float32, shape (B, features), both."""
        mean, spread = self.encode(features).chunk(2, dim=1)
        deviation = functional.softplus(spread)
        if torch.is_grad_enabled():
            self._divergences.value = divergence_from_standard(mean, deviation)
        noise = torch.randn(mean.shape, generator=self._stream.value).to(mean)
        decoded: Tensor = self.decode(mean + deviation * noise)
        return decoded


class BottleneckedLayer(nn.Module):
    """What takes the place of the last layer: the bottleneck, then that layer."""

    def __init__(self, bottleneck: VariationalBottleneck, layer: nn.Linear) -> None:
        """Put `bottleneck` in front of `layer`."""
        super().__init__()
        self.bottleneck = bottleneck
        self.layer = layer

    def forward(self, features: Tensor) -> Tensor:
        """Return logits of shape (B, classes) for `features` of shape (B, features)."""
        logits: Tensor = self.layer(self.bottleneck(features))
        return logits


class Precode(Defence):
    """Scheliga et al., PRECODE (arXiv 2108.04725); `losses` adds beta times the divergence of each image.

    It belongs to the agreed architecture. An attack may ignore every gradient behind the draw (arXiv 2208.04767).

    Deviation: the divergence is in nats; the authors' code divides it by log 2.
    """

    def __init__(self, *, latent: int = 256, beta: float = 1e-3) -> None:
        """Prepare networks with `latent` dimensions and weigh divergences by `beta`."""
        self.latent, self.beta = latent, beta
        self._divergences: Shared[Tensor | None] = Shared(None)

    @property
    def name(self) -> str:
        """As the paper names it."""
        return "precode"

    @property
    def source(self) -> str:
        """The paper."""
        return "arXiv 2108.04725"

    def prepare(self, network: nn.Module, stream: torch.Generator) -> nn.Module:
        """Return a copy of `network` with the bottleneck in front of its last fully connected layer."""
        prepared = copy.deepcopy(network)
        name = find_last_layer(prepared)
        layer = linear_layer(prepared, name)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=stream)))
            bottleneck = VariationalBottleneck(layer.in_features, self.latent, stream, self._divergences)
        parent, _, child = name.rpartition(".")
        prepared.get_submodule(parent).register_module(child, BottleneckedLayer(bottleneck, layer))
        return prepared

    def penalties(self, count: int) -> Tensor:
        """Return beta times the divergences of the last forward pass, shape (B,), and forget them.

        Raises:
            ModelError: there was none of `count` images since they were last asked for.
        """
        kept, self._divergences.value = self._divergences.value, None
        if kept is None or len(kept) != count:
            found = "none" if kept is None else f"one of {len(kept)}"
            raise ModelError(f"Expected a forward pass of {count} images through a prepared network, found {found}.")
        return self.beta * kept


def divergence_from_standard(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return the divergence KL(N(mean, deviation^2) || N(0, 1)), summed over dimensions, in nats: shape (B,).

    Args:
        mean: shape (B, latent).
        deviation: above 0, shape (B, latent).
    """
    return (mean.square() + deviation.square() - 1 - 2 * deviation.log()).sum(dim=1) / 2
