"""Opacus' hooks on a network, made to tell gradients apart unit by unit, and their complete removal.

`UnitGradients` keeps every unit's gradient (mode "hooks"), `GhostNorms` only its norm (mode "ghost"). Read next:
`clipping`, which uses both.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from opacus.grad_sample import GradSampleHooks, GradSampleHooksFastGradientClipping
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient
from torch import Tensor, nn


class _PlainLayout:
    """Remembers activations in row-major order.

    Opacus unfolds the input of a convolution by strides that hold for row-major memory only: of a channels-last input
    it takes a wrong gradient without a word, and under ghost clipping a wrong norm, which would void the guarantee.
    """

    def capture_activations_hook(self, module: nn.Module, forward_input: Sequence[Tensor], output: Tensor) -> None:
        """Hand row-major copies of `forward_input` to Opacus."""
        plain = [tensor.reshape(-1).view(tensor.shape) for tensor in forward_input]
        super().capture_activations_hook(module, plain, output)  # type: ignore[misc]


class UnitGradients(_PlainLayout, GradSampleHooks):  # type: ignore[misc]  # Opacus has no types
    """Leaves each unit's gradient in `grad_sample` of every trainable parameter, shape (U, *parameter.shape).

    Attributes:
        sizes: int64, shape (U,): how many images in a row belong to each unit, whose gradients are averaged; None
            where every image is a unit.
    """

    sizes: Tensor | None = None

    def capture_backprops_hook(
        self, module: nn.Module, _forward_input: Any, output: Sequence[Tensor], loss_reduction: str, batch_first: bool
    ) -> None:
        """Keep the gradients of the units.

        Deviation: Opacus first fills a buffer with zeros and copies every gradient into it, which costs more than the
        gradients themselves; it needs that for sequences of unequal length only.
        """
        if not self.hooks_enabled:
            return
        activations, backprops = self.rearrange_grad_samples(
            module=module, backprops=output[0].detach(), loss_reduction=loss_reduction, batch_first=batch_first
        )
        compute = self.GRAD_SAMPLERS.get(type(module), ft_compute_per_sample_gradient)
        for parameter, gradients in compute(module, activations, backprops).items():
            if parameter.requires_grad:
                found = self._average(gradients)
                known = parameter.grad_sample
                parameter.grad_sample = found if known is None else known + found
        if not module.activations:
            del module.max_batch_len

    def measure_norms(self, losses: Tensor, images: Tensor) -> list[Tensor]:
        """Go backward through `losses`, one per image, and return the norms (U,) of each trainable parameter.

        Args:
            losses: shape (N,).
            images: the network's input; see `run_hooks`.
        """
        run_hooks(losses, images)
        kept = [vars(parameter)["grad_sample"] for parameter in _trainable(self._module)]
        return [torch.linalg.vector_norm(gradients.flatten(1), dim=1) for gradients in kept if gradients is not None]

    def _average(self, gradients: Tensor) -> Tensor:
        if self.sizes is None:
            return gradients
        owner = torch.arange(len(self.sizes), device=gradients.device).repeat_interleave(self.sizes)
        totals = gradients.new_zeros((len(self.sizes), *gradients.shape[1:])).index_add_(0, owner, gradients)
        return totals.div_(self.sizes.view(-1, *[1] * (gradients.ndim - 1)))


class GhostNorms(_PlainLayout, GradSampleHooksFastGradientClipping):  # type: ignore[misc]  # Opacus has no types
    """Leaves the norm of each image's gradient, without the gradient (Li et al., arXiv 2110.05679, section 4)."""

    def measure_norms(self, losses: Tensor, images: Tensor) -> list[Tensor]:
        """Go backward through `losses` and return norms, as `UnitGradients.measure_norms` does; the graph stays.

        `images` must ask for their gradient: a pass through the whole graph would leave gradients that nobody clipped.
        """
        losses.sum().backward(inputs=[images], retain_graph=True)
        norms = (vars(parameter).pop("_norm_sample", None) for parameter in _trainable(self._module))
        return [found for found in norms if found is not None]


Hooks = UnitGradients | GhostNorms


@contextmanager
def hooks_on(model: nn.Module, mode: str) -> Iterator[Hooks]:
    """Attach the hooks of `mode`, "hooks" or "ghost", for the block; afterwards nothing of them is left on `model`."""
    kind = UnitGradients if mode == "hooks" else GhostNorms
    hooks = kind(model, loss_reduction="sum")
    try:
        yield hooks
    finally:
        hooks.cleanup()
        for parameter in model.parameters():
            parameter.grad = None
            vars(parameter).pop("summed_grad", None)
        for module in model.modules():
            for name in ("activations", "max_batch_len"):
                vars(module).pop(name, None)


def run_hooks(losses: Tensor, images: Tensor) -> None:
    """Go backward through `losses`, one per image, so that the hooks on a network's layers run.

    Where `images` ask for their gradient, the graph runs backward only towards them: the ordinary gradients of the
    parameters, a third of the work, are not needed. A network that takes in more, such as a class, has layers that do
    not lie between images and losses. Its images must not ask for their gradient: then the whole graph runs backward,
    and leaves ordinary gradients, which are neither clipped nor noised, in `grad` until the optimizer clears it.
    """
    if images.requires_grad:
        losses.sum().backward(inputs=[images])
        return
    with warnings.catch_warnings():
        # Of an embedding's input, a number, no gradient exists; the hook needs that of the output alone.
        warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)
        losses.sum().backward()


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
