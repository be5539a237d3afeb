"""Where the representation of an image is found in any network: in front of its last fully connected layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from attacks.linear_leakage.planted_network import linear_layer
from federation.errors import ModelError


def find_last_layer(network: nn.Module) -> str:
    """Return the name of the fully connected layer that `network` registered last: its output, in all of ours.

    Raises:
        ModelError: it has none.
    """
    names: list[str] = [name for name, module in network.named_modules() if isinstance(module, nn.Linear) and name]
    if not names:
        raise ModelError(f"Expected a fully connected layer inside {type(network).__name__}, found none.")
    return names[-1]


def read_input(network: nn.Module, layer: str, images: Tensor) -> Tensor:
    """Return what the fully connected layer called `layer` is given for `images`, with its graph: shape (B, features).

    Args:
        network: run once on all images.
        layer: dotted name.
        images: float32 in [0, 1], shape (B, C, H, W).

    Raises:
        ModelError: the layer is of another kind, or `network` does not use it.
    """
    seen: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0])

    hook = linear_layer(network, layer).register_forward_pre_hook(keep)
    try:
        network(images)
    finally:
        hook.remove()
    if not seen:
        raise ModelError(f"Expected the network to use its layer {layer!r}, found that it does not.")
    return seen[-1]
