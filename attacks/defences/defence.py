"""What every defence can do: change the network, choose batches, change the loss, and change a step's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from federation.datasets.image_set import Task
from federation.errors import DataError
from federation.metrics import losses_of
from federation.parameters import Parameters

Losses = Callable[[Tensor, Tensor, Task], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalStep:
    """One step of local training, as it stands when its gradient is protected.

    Attributes:
        network: as trained, with the current parameters.
        images: float32 in [0, 1], shape (B, C, H, W).
        labels: as the loss wants them, B of them.
        task: what is predicted.
        iteration: number of the local step, from 0.
        stream: for whatever a defence draws; a CPU generator.
        losses: the loss per image that the gradient is the mean of; of use where a gradient is taken image by image.
    """

    network: nn.Module
    images: Tensor
    labels: Tensor
    task: Task
    iteration: int
    stream: torch.Generator
    losses: Losses = losses_of


class Defence:
    """No defence; each method of a subclass that differs from these says how."""

    @property
    def name(self) -> str:
        """As the field names it, with the setting that decides."""
        return "none"

    @property
    def source(self) -> str:
        """The paper."""
        return "none"

    def prepare(self, network: nn.Module, stream: torch.Generator) -> nn.Module:
        """Return the network that is agreed on and trained; `network` itself is left as it was.

        Args:
            network: from float32 images in [0, 1], shape (B, C, H, W), to logits.
            stream: for new parameters and for what the network draws later; a CPU generator.

        Raises:
            ModelError: the defence does not fit the network.
        """
        del stream
        return network

    def choose(self, labels: NDArray[np.int64], count: int, stream: np.random.Generator) -> NDArray[np.int64] | None:
        """Return the indices of the images that form a batch, or None: as they come.

        Args:
            labels: shape (N,) or (N, L), of all images.
            count: how many a batch has.
            stream: for whatever is drawn.
        """
        del labels, count, stream
        return None

    def losses(self, logits: Tensor, labels: Tensor, task: Task) -> Tensor:
        """Return the loss per image that is trained on, shape (B,): once after each forward pass.

        Args:
            logits: shape (B, classes).
            labels: as `federation.metrics.targets` gives them, B of them.
            task: what is predicted.

        Raises:
            DataError: two defences of a stack each want a loss of their own.
            ModelError: a term is missing that the last forward pass should have left.
        """
        errors = self.errors(logits, labels, task)
        if errors is None:
            errors = losses_of(logits, labels, task)
        penalties = self.penalties(len(logits))
        return errors if penalties is None else errors + penalties

    def errors(self, logits: Tensor, labels: Tensor, task: Task) -> Tensor | None:
        """Return what replaces the usual loss, shape (B,), or None: nothing does."""
        del logits, labels, task
        return None

    def penalties(self, count: int) -> Tensor | None:
        """Return what the last forward pass, of `count` images, adds to the loss, shape (B,), or None."""
        del count
        return None

    def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
        """Return what leaves in place of `gradient`, the mean over the images of `step`; new tensors, detached.

        Raises:
            ModelError: the defence does not fit the network.
        """
        del step
        return {name: value.detach().clone() for name, value in gradient.items()}


class Stack(Defence):
    """Several defences at once."""

    def __init__(self, parts: Sequence[Defence]) -> None:
        """Apply `parts` in order."""
        self._parts = tuple(parts)

    @property
    def name(self) -> str:
        """All names."""
        return "+".join(part.name for part in self._parts)

    @property
    def source(self) -> str:
        """All sources."""
        return "; ".join(part.source for part in self._parts)

    def prepare(self, network: nn.Module, stream: torch.Generator) -> nn.Module:
        """Return the network after every part has changed it."""
        for part in self._parts:
            network = part.prepare(network, stream)
        return network

    def choose(self, labels: NDArray[np.int64], count: int, stream: np.random.Generator) -> NDArray[np.int64] | None:
        """Return what the first part that chooses has chosen."""
        choices = (part.choose(labels, count, stream) for part in self._parts)
        return next((chosen for chosen in choices if chosen is not None), None)

    def errors(self, logits: Tensor, labels: Tensor, task: Task) -> Tensor | None:
        """Return the loss of the one part that has one.

        Raises:
            DataError: two parts have.
        """
        found = [part.errors(logits, labels, task) for part in self._parts]
        own = [errors for errors in found if errors is not None]
        if len(own) > 1:
            raise DataError(f"Expected one loss at most, found {len(own)} in {self.name!r}: leave one defence out.")
        return own[0] if own else None

    def penalties(self, count: int) -> Tensor | None:
        """Return the sum of what the parts add."""
        found = [part.penalties(count) for part in self._parts]
        own = [penalties for penalties in found if penalties is not None]
        return torch.stack(own).sum(dim=0) if own else None

    def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
        """Return the gradient after every part has changed it."""
        gradient = super().protect(gradient, step)
        for part in self._parts:
            gradient = part.protect(gradient, replace(step, losses=self.losses))
        return gradient


def stack(defences: Sequence[Defence]) -> Defence:
    """Return all of `defences` as one, each applied to what those before it left."""
    return Stack(defences)
