"""The hidden layers of a received model, taken apart for the checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from federation.parameters import digest

_MOST_UNITS = 2048
_PIECE = 32
_SEED_DIGITS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenLayer:
    """A fully connected layer that another one follows; an output layer is none, its rows may well be opposites.

    Attributes:
        name: of the layer.
        weight: one row per unit, shape (K, N).
        bias: shape (K,).
        following: the next layer's columns for these units, shape (classes, K).
        inputs: what reaches the layer for every probe, shape (P, N).
    """

    name: str
    weight: Tensor
    bias: Tensor
    following: Tensor
    inputs: Tensor


def has_hidden_layers(model: nn.Module) -> bool:
    """Return whether there is anything in `model` that `read_hidden_layers` would return."""
    return any(_find_pairs(model))


def read_hidden_layers(model: nn.Module, probes: Tensor) -> list[HiddenLayer]:
    """Return the hidden layers of `model`, with what `probes` make of their inputs.

    Of more than 2048 units that many are looked at, drawn by the digest of the layer: whoever crafts units cannot know
    which ones are looked at before all are fixed.

    Args:
        model: on the CPU; it stays as it is.
        probes: float32 in [0, 1], shape (P, C, H, W).
    """
    pairs = list(_find_pairs(model))
    inputs = _catch_inputs(model, pairs, probes)
    return [_read(name, layer, following, inputs[name]) for name, layer, following in pairs]


def _catch_inputs(
    model: nn.Module, pairs: Sequence[tuple[str, nn.Linear, nn.Linear]], probes: Tensor
) -> dict[str, Tensor]:
    """Return what reaches the first layer of each of `pairs`; pieces of `probes` go through one after the other."""
    caught: dict[str, Tensor] = {}
    pieces: list[dict[str, Tensor]] = []
    handles = [
        layer.register_forward_pre_hook(lambda _, given, name=name: caught.update({name: given[0].flatten(1)}))
        for name, layer, _ in pairs
    ]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for part in probes.split(_PIECE):
                model(part)
                pieces.append(dict(caught))
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return {name: torch.cat([piece[name] for piece in pieces]) for name, _, _ in pairs}


def _find_pairs(model: nn.Module) -> Iterator[tuple[str, nn.Linear, nn.Linear]]:
    """Yield every fully connected layer whose outputs are as many as the inputs of the next one."""
    found = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    for (name, layer), (_, following) in pairwise(found):
        if layer.out_features == following.in_features:
            yield name, layer, following


def _read(name: str, layer: nn.Linear, following: nn.Linear, inputs: Tensor) -> HiddenLayer:
    weight, columns = layer.weight.detach(), following.weight.detach()
    given: Tensor | None = layer.bias
    bias = torch.zeros(len(weight)) if given is None else given.detach()
    if len(weight) > _MOST_UNITS:
        seed = int(digest({"weight": weight})[:_SEED_DIGITS], 16)
        chosen = torch.randperm(len(weight), generator=torch.Generator().manual_seed(seed))[:_MOST_UNITS]
        weight, bias, columns = weight[chosen], bias[chosen], columns[:, chosen]
    return HiddenLayer(name=name, weight=weight, bias=bias, following=columns, inputs=inputs)
