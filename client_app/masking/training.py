"""Local training with masking: in every step real and synthetic images, with the weights that the mode gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client_app.augmentation import draw_augmentation
from client_app.masking.logical_batch import (
    Losses,
    Piece,
    accumulate_gradient,
    divide,
    seeded_chance,
    settle_batch_statistics,
)
from client_app.masking.preparation import Masking
from client_app.masking.schedule import Step, plan_epoch
from federation.preprocessing import to_unit_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class RealImages:
    """The training split on the device.

    Attributes:
        pixels: uint8, shape (n, C, H, W).
        labels: as the loss wants them.
        augmentation: kind of augmentation, of real and synthetic images alike.
    """

    pixels: Tensor
    labels: Tensor
    augmentation: str


def train_masked(
    model: nn.Module,
    real: RealImages,
    losses_of: Losses,
    optimizer: torch.optim.Optimizer,
    masking: Masking,
    *,
    epochs: int,
    batch_size: int,
    generator: torch.Generator,
) -> None:
    """Train `model` in place, `epochs` times over the real images.

    Guarantee: every step's gradient is the weighted sum of losses that `client_app.masking.schedule` states for the
        mode, whatever `masking.micro_batch` is, up to the rounding of float32 sums. No relation or unit of privacy.
    Not guaranteed: privacy; masking is an empirical defence. That layers which act by chance, such as dropout, draw the
        same whatever the pieces are: the draws of a step come from one seed, and follow the shapes of the pieces.

    Args:
        model: already on the device of `real`.
        real: at least one image.
        losses_of: one loss per image, through `model`.
        optimizer: of the trainable parameters.
        masking: mode and synthetic images.
        epochs: passes over the real images.
        batch_size: real images per step; the last mini-batch may have fewer.
        generator: CPU generator for all orders and augmentation.

    Raises:
        SiteError: the model has layers that the masking refuses.
    """
    settle_batch_statistics(model, masking.batch_statistics)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    device = real.pixels.device
    for _ in range(epochs):
        batches = torch.randperm(len(real.pixels), generator=generator).to(device).split(batch_size)
        order = torch.randperm(masking.size, generator=generator).numpy()
        for step in plan_epoch(masking.mode, [len(batch) for batch in batches], masking.size):
            chosen = batches[0][:0] if step.batch is None else batches[step.batch]
            with seeded_chance(model, generator, device):
                pieces = _cut(step, chosen, order, real, masking, generator)
                accumulate_gradient(parameters, losses_of, pieces)
            optimizer.step()


def _cut(
    step: Step,
    chosen: Tensor,
    order: NDArray[np.int64],
    real: RealImages,
    masking: Masking,
    generator: torch.Generator,
) -> Iterator[Piece]:
    """Yield the logical batch of `step`: first its real images, then the synthetic ones, in pieces of equal length.

    Everything random is drawn for the whole, before the first piece.
    """
    device, places = chosen.device, order[step.synthetic.start : step.synthetic.stop]
    own, total = len(chosen), len(chosen) + len(places)
    weights = torch.tensor([step.real_weight, step.synthetic_weight], dtype=torch.float32)
    weights = weights.repeat_interleave(torch.tensor([own, len(places)])).to(device)
    variation = masking.synthetic.draw_variation(total, generator)
    augmentation = draw_augmentation(total, real.augmentation, generator)
    for part in divide(total, masking.micro_batch):
        ours, theirs = chosen[part.start : min(part.stop, own)], range(max(part.start, own) - own, part.stop - own)
        images, labels = to_unit_interval(real.pixels[ours]), real.labels[ours]
        if theirs:
            extra, classes = masking.synthetic.take(places[theirs.start : theirs.stop], device)
            images, labels = torch.cat([images, extra]), torch.cat([labels, classes])
        for changes in (variation, augmentation):
            images = changes.part(part.start, part.stop).apply(images)
        yield Piece(
            images=images,
            labels=labels,
            weights=weights[part.start : part.stop],
        )
