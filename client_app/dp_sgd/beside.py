"""Gradients of synthetic images beside the mechanism: added after clipping and noise, so that no clip norm knows them.

What they are made of, parameters that have already been paid for and a cache that no private image had a part in, or
whose making is booked, makes adding them post-processing. `client_app.masking.preparation` sees to the cache.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from client_app.augmentation import draw_augmentation
from client_app.dp_sgd.gradient_hooks import Hooks
from client_app.masking.logical_batch import Losses, Piece, accumulate_gradient, divide
from client_app.masking.preparation import Masking


class SyntheticGradients:
    """Computes the synthetic part of a step on a network whose hooks stand still meanwhile."""

    def __init__(
        self,
        model: nn.Module,
        hooks: Hooks,
        losses_of: Losses,
        masking: Masking,
        augmentation: str,
        generator: torch.Generator,
    ) -> None:
        """Compute on `model`, to which `hooks` belong, and on its device.

        Args:
            model: whose parameters are trained.
            hooks: of the mechanism.
            losses_of: one loss per image, through `model`.
            masking: whose synthetic images.
            augmentation: that real images have, too.
            generator: CPU generator of orders and augmentation.
        """
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._hooks, self._losses_of, self._masking = hooks, losses_of, masking
        self._augmentation, self._generator, self._device = augmentation, generator, self._parameters[0].device
        self._order = np.arange(masking.size)

    def shuffle(self) -> None:
        """Begin an epoch: put the images in a new order."""
        self._order = torch.randperm(self._masking.size, generator=self._generator).numpy()

    def compute(self, part: range, weight: float) -> list[Tensor]:
        """Return the gradient of `weight` times the losses of the images at `part` of the order, by parameter."""
        self._hooks.disable_hooks()
        try:
            with warnings.catch_warnings():
                # Hooks that stand still are called all the same, and torch warns that images ask for no gradient.
                warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)
                accumulate_gradient(self._parameters, self._losses_of, self._pieces(part, weight))
        finally:
            self._hooks.enable_hooks()
        found = [torch.zeros_like(item) if item.grad is None else item.grad for item in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        return found

    def _pieces(self, part: range, weight: float) -> Iterator[Piece]:
        places = self._order[part.start : part.stop]
        variation = self._masking.synthetic.draw_variation(len(places), self._generator)
        augmentation = draw_augmentation(len(places), self._augmentation, self._generator)
        for piece in divide(len(places), self._masking.micro_batch):
            images, labels = self._masking.synthetic.take(places[piece.start : piece.stop], self._device)
            for changes in (variation, augmentation):
                images = changes.part(piece.start, piece.stop).apply(images)
            yield Piece(images=images, labels=labels, weights=torch.full((len(images),), weight, device=self._device))
