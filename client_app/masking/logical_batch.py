"""A logical batch: the gradient of a weighted sum of losses, computed in pieces that fit into memory, exactly.

The parameters stay as they are until all pieces have been seen, so the result does not depend on how a batch is
divided, but for the rounding of floating-point sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from federation.errors import SiteError, SiteErrorCode

Losses = Callable[[Tensor, Tensor], Tensor]
"""From images and labels to one loss per image, shape (N,), through the network."""

_BATCH_STATISTICS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)  # noqa: SLF001 - all kinds
_CHANCE = (nn.modules.dropout._DropoutNd, nn.RReLU)  # noqa: SLF001 - all kinds
_WITH_DROPOUT = (nn.MultiheadAttention, nn.RNNBase)
_LOW_PRECISION = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a logical batch.

    Attributes:
        images: float32 in [0, 1], shape (N, C, H, W).
        labels: as the loss wants them, shape (N,) or (N, L).
        weights: float32, shape (N,): by which each image's loss is multiplied.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor


def accumulate_gradient(parameters: Sequence[Tensor], losses_of: Losses, pieces: Iterable[Piece]) -> None:
    """Leave the gradient of the weighted sum of all losses in `grad` of every parameter, in place of what was there.

    Gradients of 16-bit parameters are summed in float32. A parameter that no loss depends on gets no gradient. A single
    image goes through the network twice, the second time without weight, because libraries convolve one image by
    another kernel than several, whose rounding differs by enough to move an activation across the kink of a rectifier.

    Args:
        parameters: those that are trained.
        losses_of: one loss per image.
        pieces: of the logical batch, each looked at once; an empty one is passed over.
    """
    sums: dict[int, Tensor] = {}
    for parameter in parameters:
        parameter.grad = None
    coarse = [parameter for parameter in parameters if parameter.dtype in _LOW_PRECISION]
    for piece in pieces:
        if not len(piece.images):
            continue
        several = _at_least_two(piece)
        losses = losses_of(several.images, several.labels)
        wide = torch.promote_types(losses.dtype, torch.float32)
        (losses.to(wide) * several.weights.to(wide)).sum().backward()
        for parameter in coarse:
            if parameter.grad is not None:
                found = parameter.grad.float()
                sums[id(parameter)] = sums[id(parameter)].add_(found) if id(parameter) in sums else found
                parameter.grad = None
    for parameter in coarse:
        if id(parameter) in sums:
            parameter.grad = sums[id(parameter)].to(parameter.dtype)


def _at_least_two(piece: Piece) -> Piece:
    if len(piece.images) > 1:
        return piece
    return Piece(
        images=torch.cat([piece.images, piece.images]),
        labels=torch.cat([piece.labels, piece.labels]),
        weights=torch.cat([piece.weights, torch.zeros_like(piece.weights)]),
    )


def divide(count: int, largest: int) -> list[range]:
    """Return the numbers from 0 to `count` - 1 as the fewest ranges of at most `largest`, of nearly equal length."""
    parts = -(-count // largest)
    borders = [count * part // parts for part in range(parts + 1)] if parts else [0]
    return [range(start, end) for start, end in pairwise(borders)]


def settle_batch_statistics(model: nn.Module, how: str) -> None:
    """Put `model` into training mode without any layer whose output for an image depends on the others.

    Args:
        model: what is trained.
        how: "refuse" a model with layers that keep batch statistics, or "freeze" these layers in evaluation mode: they
            then use the statistics that were received, and leave them as they are.

    Raises:
        SiteError: there are such layers and they are refused, or they have no statistics to use.
    """
    found = {name: part for name, part in model.named_modules() if isinstance(part, _BATCH_STATISTICS)}
    mixing = {
        name: part
        for name, part in found.items()
        if not isinstance(part, nn.modules.instancenorm._InstanceNorm) or part.track_running_stats  # noqa: SLF001
    }
    if mixing and how == "refuse":
        raise SiteError(
            SiteErrorCode.MODEL_MISMATCH,
            f"Expected no layer with batch statistics under masking, found {sorted(mixing)}: use GroupNorm, or set "
            "masking.batch-statistics = 'freeze'.",
        )
    if bare := sorted(name for name, part in mixing.items() if part.running_mean is None):
        raise SiteError(
            SiteErrorCode.MODEL_MISMATCH, f"Expected running statistics to freeze, found none in layers {bare}."
        )
    model.train()
    for part in mixing.values():
        part.eval()


@contextmanager
def seeded_chance(model: nn.Module, generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Let layers that act by chance, such as dropout, draw from a seed of this block; torch's own state is kept.

    The seed is drawn from `generator`, and only for a model that has such layers.
    """
    if not any(_acts_by_chance(part) for part in model.modules()):
        yield
        return
    seed = int(torch.randint(2**63 - 1, (1,), generator=generator))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def _acts_by_chance(part: nn.Module) -> bool:
    """Return whether `part` draws from torch's global generator; attention and recurrent layers hold a plain number."""
    return isinstance(part, _CHANCE) or (isinstance(part, _WITH_DROPOUT) and part.dropout > 0)
