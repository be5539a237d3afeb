"""Models that a malicious server would send, crafted within a pinned architecture, for whoever has to recognize them.

Each keeps names, shapes and dtypes of an honest model and is what a published attack puts there: an imprint of one
measurement with a ladder of thresholds (Robbing the Fed, arXiv 2110.13057), the same behind convolutions as they are or
made to pass the image through (Scale-MIA, arXiv 2311.05808; LOKI, arXiv 2303.12233), one narrow bin, or trap weights
(arXiv 2112.02918). `Disguise` is what an attacker who knows the guard does about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from federation.parameters import Parameters, read_parameters, write_parameters

Kind = Literal["imprint", "one-shot", "trap"]
Measurement = Literal["mean", "cosine", "random", "smooth"]
Convolutions = Literal["as-they-are", "identity", "own-block"]

_TRAP_SCALE = 0.97
_MODE = 5
_BLOCKS = 8
_KERNEL_DIMENSIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Disguise:
    """How an attacker hides.

    Attributes:
        permuted: whether units stand in random order.
        share: of the units that are crafted; the others stay ordinary.
        noise: white noise on rows and columns, relative to their norms.
        scaled: whether every unit has a scale of its own, which its column undoes.
    """

    permuted: bool = False
    share: float = 1.0
    noise: float = 0.0
    scaled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Crafting:
    """What to craft.

    Attributes:
        kind: a ladder of thresholds, a single narrow bin, or trap weights.
        measurement: what the ladder measures of its input: the mean, a cosine, a random or a smooth random direction.
        convolutions: what becomes of the layers in front.
        gain: norm of a crafted row, relative to an honest one.
        disguise: how it is hidden.
    """

    kind: Kind = "imprint"
    measurement: Measurement = "mean"
    convolutions: Convolutions = "as-they-are"
    gain: float = 1.0
    disguise: Disguise = field(default_factory=Disguise)


def craft_model(model: nn.Module, images: Tensor, crafting: Crafting, generator: torch.Generator) -> Parameters:
    """Return the parameters of `model` with its layer `hidden` and what stands before and behind it crafted.

    Args:
        model: an honest one with the layers `hidden` and `output`; it stays as it is. Of one without them only the
            convolutions are crafted.
        images: the attacker's own, of the same kind as the victim's: float32 in [0, 1], shape (B, C, H, W).
        crafting: what to craft.
        generator: of every draw.
    """
    honest = read_parameters(model)
    crafted = {name: value.clone() for name, value in honest.items()}
    _craft_convolutions(crafted, crafting, generator)
    if "hidden.weight" not in honest:
        return crafted
    write_parameters(model, crafted)
    inputs = _inputs_of_hidden(model, images)
    write_parameters(model, honest)
    disguise, count = crafting.disguise, len(crafted["hidden.bias"])
    wanted = 2 if crafting.kind == "one-shot" else max(2, round(disguise.share * count))
    spread = disguise.permuted or crafting.kind == "one-shot"
    units = torch.randperm(count, generator=generator)[:wanted] if spread else torch.arange(wanted)
    rows, biases = _KINDS[crafting.kind](inputs, crafting, wanted, generator)
    scale = crafting.gain * float(honest["hidden.weight"].norm(dim=1).median()) / float(rows.norm(dim=1).median())
    columns = crafted["output.weight"][:, units] if crafting.kind == "trap" else crafted["output.weight"][:, :1].clone()
    own = torch.exp(torch.randn(wanted, generator=generator)) if disguise.scaled else torch.ones(wanted)
    crafted["hidden.weight"][units] = _blur(rows * scale * own[:, None], 1, disguise.noise, generator)
    crafted["hidden.bias"][units] = biases * scale * own
    crafted["output.weight"][:, units] = _blur(columns / own, 0, disguise.noise, generator)
    return crafted


def _craft_ladder(inputs: Tensor, crafting: Crafting, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return rows that all measure one thing, and biases at the quantiles of it (arXiv 2110.13057, section 3)."""
    direction = _direction(inputs.shape[1], crafting.measurement, generator)
    measured = inputs @ direction
    levels = torch.special.ndtri(torch.linspace(0.001, 0.999, count, dtype=torch.float64)).float()
    return direction.expand(count, -1), -(measured.mean() + measured.std() * levels)


def _craft_bin(inputs: Tensor, crafting: Crafting, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return two rows whose difference holds the image in one narrow bin and nothing else."""
    direction = _direction(inputs.shape[1], crafting.measurement, generator)
    middle = torch.quantile(inputs @ direction, torch.linspace(0.5, 0.51, count))
    return direction.expand(count, -1), -middle


def _craft_traps(inputs: Tensor, crafting: Crafting, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return rows of which half of the weights are negative and the other half outweigh them not quite."""
    del crafting
    width = inputs.shape[1]
    half = width // 2
    rows = torch.zeros(count, width)
    for row in rows:
        order = torch.randperm(width, generator=generator)
        magnitudes = torch.randn(half, generator=generator).abs()
        row[order[:half]] = -magnitudes
        row[order[half : 2 * half]] = _TRAP_SCALE * magnitudes[torch.randperm(half, generator=generator)]
    return rows, torch.zeros(count)


_KINDS: dict[Kind, Callable[[Tensor, Crafting, int, torch.Generator], tuple[Tensor, Tensor]]] = {
    "imprint": _craft_ladder,
    "one-shot": _craft_bin,
    "trap": _craft_traps,
}


def _direction(width: int, measurement: Measurement, generator: torch.Generator) -> Tensor:
    place = torch.arange(width) + 0.5
    if measurement == "mean":
        direction = torch.ones(width)
    elif measurement == "cosine":
        direction = torch.cos(math.pi / width * place * _MODE)
    elif measurement == "random":
        direction = torch.randn(width, generator=generator)
        direction -= direction.mean()
    else:
        phases = torch.rand(8, 2, generator=generator)
        waves = torch.cos(2 * math.pi * (phases[:, :1] * 10 * place / width + phases[:, 1:]))
        direction = waves.sum(dim=0)
    unit: Tensor = direction / direction.norm()
    return unit


def _craft_convolutions(parameters: Parameters, crafting: Crafting, generator: torch.Generator) -> None:
    """Make every convolution pass on its first inputs: all output channels share them, or only one block has any."""
    if crafting.convolutions == "as-they-are":
        return
    for name, kernel in parameters.items():
        if kernel.dim() != _KERNEL_DIMENSIONS:
            continue
        middle = kernel.shape[2] // 2
        outputs, inputs = kernel.shape[:2]
        passing = outputs if crafting.convolutions == "identity" else min(outputs, max(1, inputs // _BLOCKS))
        kernel.zero_()
        for channel in range(passing):
            kernel[channel, channel % inputs, middle, middle] = 1.0
        kernel.copy_(_blur(kernel.flatten(1), 1, crafting.disguise.noise, generator).view(kernel.shape))
        if (bias := parameters.get(name.removesuffix("weight") + "bias")) is not None:
            bias.zero_()


def _inputs_of_hidden(model: nn.Module, images: Tensor) -> Tensor:
    caught: list[Tensor] = []
    handle = model.get_submodule("hidden").register_forward_pre_hook(lambda _, given: caught.append(given[0].detach()))
    with torch.no_grad():
        model(images)
    handle.remove()
    return caught[0]


def _blur(values: Tensor, dim: int, noise: float, generator: torch.Generator) -> Tensor:
    """Return `values` with white noise whose norm along `dim` is `noise` times theirs."""
    white = torch.randn(values.shape, generator=generator) / math.sqrt(values.shape[dim])
    blurred: Tensor = values + noise * values.norm(dim=dim, keepdim=True) * white
    return blurred
