"""DP-SGD on the denoising network of a cache's generator, by the very steps that train a hospital's updates.

Read next: `private_training`, which plans it, pays for it and keeps its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from aegis_cache.generation.diffusion.network import DenoisingNetwork
from aegis_cache.generation.diffusion.schedule import STEPS, signal_rates
from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan
from client_app.dp_sgd.batches import Batch
from client_app.dp_sgd.clipping import Losses, make_clipping_optimizer
from client_app.dp_sgd.gradient_hooks import hooks_on
from client_app.dp_sgd.separability import require_separable_losses
from client_app.dp_sgd.units import Sample, Units
from client_app.noise.source import NoiseSource
from federation.accounting.events import SampledGaussianRelease
from federation.datasets.image_set import ImageSet
from federation.preprocessing import to_unit_interval

_PHYSICAL_BATCH = 64
_WARM_UP = 0.2


def train_privately(
    prepared: DiffusionTraining,
    images: ImageSet,
    units: Units,
    event: SampledGaussianRelease,
    *,
    clip_norm: float,
    noise: NoiseSource,
    draws: torch.Generator,
    show: Callable[[float, str], None] = lambda _done, _state: None,
) -> DenoisingNetwork:
    """Return the moving average of `prepared.network`, trained by DP-SGD as `event` says.

    Every step draws a Poisson sample of units and for each of their images a step of diffusion, its noise, and whether
    the class is hidden; averages each unit's gradients over its images, clips the average, adds noise to the sum,
    divides by the expected number of units and lets AdamW move (Abadi et al., arXiv 1607.00133, algorithm 1). An empty
    sample is a step on noise alone. The moving average is taken of noised weights, and so costs nothing.

    Guarantee: the network returned is (epsilon, delta)-differentially private for every pair that
    `federation.accounting` computes from `event`, under the add-or-remove relation: the neighbouring set of images has
    one unit more, while event and divisor stay what they are. The unit is one of `units`: one image, or all images of
    one patient, of which at most `units.limit` enter a step.

    Not guaranteed: anything about a cache that private images had another part in (`Provenance.is_private`); that the
    number of units stays secret, or which images are training images and permitted ones: that is chosen before; secrecy
    against someone who knows the state of `noise` or `draws`, or measures how long training takes; exact arithmetic:
    sums in float32 may exceed the clip norm by rounding; two patients who share a number, or one who has two.

    Args:
        prepared: network and average as they begin, in which `images` had no part.
        images: uint8, shape (N, C, H, W), one label each.
        units: of `images`.
        event: noise multiplier, sampling probability and number of steps.
        clip_norm: C, of a unit's gradient over all parameters together.
        noise: draws the noise, the samples, and which of a patient's images enter a step.
        draws: CPU generator of what is drawn per image; at a deployed hospital seeded by the operating system.
        show: told the share that is done and which step this is, nothing that depends on images.

    Raises:
        SiteError: the network's gradients cannot be told apart image by image.
    """
    network = prepared.network.to(memory_format=torch.contiguous_format)
    require_separable_network(network)
    plan = TrainingPlan(steps=event.steps)
    optimizer = torch.optim.AdamW(network.parameters(), lr=plan.learning_rate, betas=(0.9, 0.99))
    lessons = _Lessons(images, network, plan.label_drop, draws)
    with hooks_on(network, "hooks") as hooks:
        clipping = make_clipping_optimizer(
            hooks,
            optimizer,
            clip_norm=clip_norm,
            noise_multiplier=event.noise_multiplier,
            noise=noise,
            expected_units=event.sampling_probability * units.count,
        )
        for step in range(event.steps):
            optimizer.param_groups[0]["lr"] = _learning_rate(plan, step)
            parts = list(units.sample(event.sampling_probability, noise).pieces(_PHYSICAL_BATCH))
            if not parts:
                clipping.step_on_nobody()
            for number, part in enumerate(parts, start=1):
                clipping.signal_skip_step(number < len(parts))
                clipping.add_part(*lessons.take(part))
            _follow(prepared.average, network, min(plan.ema_decay, (step + 1) / (step + 11)))
            show((step + 1) / event.steps, f"private training: step {step + 1} of {event.steps}")
    return prepared.average


def require_separable_network(network: DenoisingNetwork) -> None:
    """Check, on noise alone, that every image's gradient can be had on its own, those of the embeddings included.

    Raises:
        SiteError: a layer mixes images, acts by chance, or defeats Opacus.
    """
    shape, stream = network.shape, torch.Generator().manual_seed(0)
    images = torch.randn((3, shape.channels, shape.height, shape.width), generator=stream)
    labels = torch.tensor([0, shape.classes - 1, shape.classes])

    def losses(batch: Batch) -> Tensor:
        return _losses(network, batch, steps=200 + 31 * batch.labels, velocity=-batch.images.flip(3))

    require_separable_losses(network, Batch(images=images, labels=labels), losses, mode="hooks")


class _Lessons:
    """What the network is asked about the images of a step."""

    def __init__(self, images: ImageSet, network: DenoisingNetwork, label_drop: float, draws: torch.Generator) -> None:
        self._pixels = torch.from_numpy(images.images.copy())
        self._labels = torch.from_numpy(images.labels.copy())
        self._network, self._label_drop, self._draws = network, label_drop, draws
        self._rates = signal_rates()

    def take(self, sample: Sample) -> tuple[Batch, Losses]:
        """Return the noised images of `sample` with their classes, some of them hidden, and how losses are had.

        Every draw is made for each image alone: spread over a batch, as without privacy, one image would move others.
        """
        chosen = torch.from_numpy(sample.indices)
        images = to_unit_interval(self._pixels[chosen]) * 2 - 1
        count, stream = len(chosen), self._draws
        hidden = torch.rand(count, generator=stream) < self._label_drop
        steps = torch.randint(STEPS, (count,), generator=stream)
        noise = torch.randn(images.shape, generator=stream)
        signal = self._rates[steps][:, None, None, None]
        dirt = (1 - signal**2).sqrt()
        velocity = signal * noise - dirt * images
        sizes = None if len(sample.sizes) == count else torch.from_numpy(sample.sizes)
        batch = Batch(
            images=signal * images + dirt * noise,
            labels=torch.where(hidden, self._network.shape.classes, self._labels[chosen]),
            sizes=sizes,
        )
        return batch, lambda asked: _losses(self._network, asked, steps=steps, velocity=velocity)


def _losses(network: DenoisingNetwork, batch: Batch, *, steps: Tensor, velocity: Tensor) -> Tensor:
    """Return each image's squared error of the velocity (arXiv 2202.00512, appendix D), shape (N,)."""
    found: Tensor = network(batch.images, steps, batch.labels)
    return (found - velocity).square().flatten(1).mean(dim=1)


def _learning_rate(plan: TrainingPlan, step: int) -> float:
    falling = 0.5 * (1 + math.cos(math.pi * step / plan.steps))
    return plan.learning_rate * min(1.0, (step + 1) / (_WARM_UP * plan.steps)) * falling


@torch.no_grad()
def _follow(average: DenoisingNetwork, network: DenoisingNetwork, decay: float) -> None:
    torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - decay)
