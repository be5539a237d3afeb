"""One step of DP-SGD: clip each unit's gradient, add noise of our own to the sum, let the optimizer move.

Noise is added to the sum with a standard deviation of noise multiplier times clip norm; then the sum is divided by
the expected number of units, never by the number drawn, which is private (arXiv 1607.00133, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from torch import Tensor

from client_app.dp_sgd.batches import Batch
from client_app.dp_sgd.gradient_hooks import GhostNorms, Hooks, UnitGradients, run_hooks
from client_app.noise.source import NoiseSource

_TINY = 1e-6


Losses = Callable[[Batch], Tensor]


class ClippingOptimizer(Protocol):
    """What a step needs of both kinds of optimizer."""

    def signal_skip_step(self, do_skip: bool) -> None:
        """Say whether the next part of the step is followed by another one."""

    def add_part(self, batch: Batch, losses_of: Losses) -> None:
        """Add the clipped gradients of one part; after the last part, noise the sum and move the parameters.

        Args:
            batch: the part's images; of every image a loss is made.
            losses_of: from a batch to one loss per image, through the network.
        """

    def step_on_nobody(self) -> None:
        """Do the step of an empty sample: noise, and nothing else."""

    def put_beside(self, share: float, gradients: list[Tensor]) -> None:
        """Let the next step move by `share` times the noised mean plus `gradients`, by parameter."""

    def step_outside(self, gradients: list[Tensor]) -> None:
        """Move by `gradients` alone; nothing private enters."""


class _OwnNoise:
    """Overrides where Opacus takes noise from, which is torch's global generator.

    Attributes:
        noise: the stream that is drawn from instead.
        beside: what the noised mean of the next step is multiplied by, and what is added to it; None for neither.
    """

    noise: NoiseSource
    beside: tuple[float, list[Tensor]] | None = None

    def add_noise(self: Any) -> None:
        """Write the noised sum of clipped gradients into `grad` of every parameter."""
        sizes = [parameter.numel() for parameter in self.params]
        stddev = self.noise_multiplier * self.max_grad_norm
        drawn = self.noise.normal((sum(sizes),), stddev, device=self.params[0].device)
        for parameter, part in zip(self.params, drawn.split(sizes), strict=True):
            parameter.grad = parameter.summed_grad + part.view(parameter.shape).to(parameter.dtype)

    def step_on_nobody(self: Any) -> None:
        """Move by noise alone, as Poisson sampling demands when it draws nobody."""
        for parameter in self.params:
            parameter.summed_grad = torch.zeros_like(parameter)
        self.add_noise()
        self.scale_grad()
        self.original_optimizer.step()
        self.zero_grad(set_to_none=True)

    def put_beside(self, share: float, gradients: list[Tensor]) -> None:
        """Keep for the next step; see `ClippingOptimizer`."""
        self.beside = share, gradients

    def scale_grad(self: Any) -> None:
        """Divide the noised sum by the expected number of units, then take in what stands beside the mechanism."""
        super().scale_grad()  # type: ignore[misc]
        if self.beside is None:
            return
        share, gradients = self.beside
        self.beside = None
        for parameter, extra in zip(self.params, gradients, strict=True):
            parameter.grad.mul_(share).add_(extra)

    def step_outside(self: Any, gradients: list[Tensor]) -> None:
        """Move without the mechanism; see `ClippingOptimizer`."""
        for parameter, gradient in zip(self.params, gradients, strict=True):
            parameter.grad = gradient
        self.original_optimizer.step()
        self.zero_grad(set_to_none=True)


class HookedOptimizer(_OwnNoise, DPOptimizer):  # type: ignore[misc]  # Opacus has no types
    """Clips gradients that `UnitGradients` kept.

    Attributes:
        hooks: where the gradients come from.
    """

    hooks: UnitGradients

    def add_part(self, batch: Batch, losses_of: Losses) -> None:
        """Clip and add one part; see `ClippingOptimizer`."""
        self.hooks.sizes = batch.sizes
        run_hooks(losses_of(batch), batch.images)
        self.step()
        self.zero_grad(set_to_none=True)

    def clip_and_accumulate(self) -> None:
        """Add to `summed_grad` the units' gradients, each scaled down to the clip norm where it exceeds it.

        Deviation: Opacus' arithmetic with one product per parameter, and without the units that are not finite.
        """
        kept = [gradients.flatten(1) for gradients in self.grad_samples]
        norms = [torch.linalg.vector_norm(gradients, dim=1) for gradients in kept]
        factors = clip_factors(norms, self.max_grad_norm)
        sound = factors > 0
        if not sound.all():
            kept, factors = [gradients[sound] for gradients in kept], factors[sound]
        for parameter, gradients in zip(self.params, kept, strict=True):
            clipped = (factors @ gradients).view(parameter.shape)
            parameter.summed_grad = clipped if parameter.summed_grad is None else parameter.summed_grad + clipped
            parameter.grad_sample = None

    @property
    def accumulated_iterations(self) -> int:
        """One: every part is clipped as it comes, and the divisor is the expected number of units alone."""
        return 1


class GhostOptimizer(_OwnNoise, DPOptimizerFastGradientClipping):  # type: ignore[misc]  # Opacus has no types
    """Weighs losses so that their gradients come out clipped, from the norms that `GhostNorms` measured.

    Attributes:
        hooks: where the norms come from.
    """

    hooks: GhostNorms

    def add_part(self, batch: Batch, losses_of: Losses) -> None:
        """Clip and add one part; see `ClippingOptimizer`. Every image is a unit: `batch.sizes` is None.

        Images whose gradient is not finite are left out of a second pass: a factor of 0 times NaN would be NaN.
        """
        losses = losses_of(batch)
        factors = clip_factors(self.hooks.measure_norms(losses, batch.images), self.max_grad_norm)
        self.hooks.disable_hooks()
        sound = factors > 0
        if not sound.all():
            losses, factors = losses_of(batch.only(sound)), factors[sound]
        (factors * losses).sum().backward()
        self.hooks.enable_hooks()
        self.step()
        self.zero_grad(set_to_none=True)


def make_clipping_optimizer(
    hooks: Hooks,
    optimizer: torch.optim.Optimizer,
    *,
    clip_norm: float,
    noise_multiplier: float,
    noise: NoiseSource,
    expected_units: float,
) -> ClippingOptimizer:
    """Return `optimizer` behind clipping and noise, of the kind that fits `hooks`.

    Args:
        hooks: on the network whose parameters `optimizer` moves.
        optimizer: moves by the noised mean gradient.
        clip_norm: C, over all parameters together.
        noise_multiplier: standard deviation of the noise on the sum, over C.
        noise: where it comes from.
        expected_units: what the noised sum is divided by.
    """
    kind = HookedOptimizer if isinstance(hooks, UnitGradients) else GhostOptimizer
    wrapped = kind(
        optimizer, noise_multiplier=noise_multiplier, max_grad_norm=clip_norm, expected_batch_size=expected_units
    )
    wrapped.hooks, wrapped.noise = hooks, noise
    clipping: ClippingOptimizer = wrapped
    return clipping


def clip_factors(norms: list[Tensor], clip_norm: float) -> Tensor:
    """Return by what each unit's gradient is multiplied: min(1, C / norm), shape (U,).

    A unit whose gradient is NaN or infinite has the factor 0: it contributes nothing, which is within the sensitivity.
    An error in its place would tell the server something about that one unit for nothing, as often as it likes to ask.

    Args:
        norms: per parameter the norms of the units' gradients, shape (U,) each.
        clip_norm: C.
    """
    total = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    factors: Tensor = (clip_norm / (total + _TINY)).clamp(max=1.0)
    return torch.where(torch.isfinite(total), factors, torch.zeros_like(factors))
