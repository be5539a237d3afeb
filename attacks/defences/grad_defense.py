"""GradDefense: noise on some slices of the flat gradient, where a slice holds equal parts of what inputs move."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.defences.defence import Defence, LocalStep, Losses
from federation.datasets.image_set import Task
from federation.errors import DataError
from federation.parameters import Parameters

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class GradDefense(Defence):
    """Wang, Guo, Xie and Qi, Protect Privacy from Gradient Leakage Attack in Federated Learning (INFOCOM 2022).

    With `clipping` it takes gradients image by image, so that in a stack it belongs before what changes gradients.

    Deviation: slices end at the very entry where the authors' greedy packing ends at multiples of the greatest common
    divisor of all tensor sizes; sensitivities are measured anew in every step; without a root set, on the first images
    of the batch itself, for a hospital has no other; clipped slices are noised like others.

    Attributes:
        slices: that the flat gradient is cut into.
        perturbed: how many of them are noised, drawn anew in every step.
        noise_stddev: of each noised entry of the mean gradient; also the norm that slices are clipped to.
        clipping: whether each image's part of a noised slice is clipped first.
        root_size: images of the batch that stand in for a root set.
        root_images: the root set, float32 in [0, 1], shape (R, C, H, W); None: see `root_size`.
        root_labels: as the loss wants them, R of them.
    """

    slices: int = 10
    perturbed: int = 5
    noise_stddev: float = 0.01
    clipping: bool = False
    root_size: int = 16
    root_images: Tensor | None = field(default=None, repr=False)
    root_labels: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            DataError: more slices are to be noised than there are, or one half of the root set is missing.
        """
        if not 0 <= self.perturbed <= self.slices or self.slices < 1:
            raise DataError(f"Expected 0 to slices={self.slices} perturbed slices, found {self.perturbed}.")
        if (self.root_images is None) != (self.root_labels is None):
            raise DataError("Expected a root set with images and labels, found one of them.")

    @property
    def name(self) -> str:
        """Whether it clips."""
        return "grad-defense-clipped" if self.clipping else "grad-defense"

    @property
    def source(self) -> str:
        """The paper."""
        return "Wang et al., INFOCOM 2022"

    def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
        """Return `gradient` with Gaussian noise on `perturbed` of the `slices`."""
        images, labels = self._root_set(step)
        found = measure_sensitivities(step.network, images, labels, step.task, losses=step.losses)
        edges = cut_slices(
            [value.numel() for value in gradient.values()], [found.get(name, 0.0) for name in gradient], self.slices
        )
        chosen = torch.randperm(self.slices, generator=step.stream)[: self.perturbed].sort().values.tolist()
        spans = [(int(edges[index]), int(edges[index + 1])) for index in chosen]
        flat = _flatten(gradient.values())
        if self.clipping:
            _clip_spans(flat, spans, step, list(gradient), self.noise_stddev)
        for start, end in spans:
            flat[start:end] += self.noise_stddev * torch.randn(end - start, generator=step.stream).to(flat)
        return _restore(flat, gradient)

    def _root_set(self, step: LocalStep) -> tuple[Tensor, Tensor]:
        if self.root_images is None or self.root_labels is None:
            return step.images[: self.root_size], step.labels[: self.root_size]
        return self.root_images, self.root_labels


def measure_sensitivities(
    network: nn.Module, images: Tensor, labels: Tensor, task: Task, *, losses: Losses
) -> dict[str, float]:
    """Return, for each parameter tensor g, the mean over images x of ||d(1^T dL/dg) / dx||, L the mean loss.

    Args:
        network: differentiable twice.
        images: the root set, float32 in [0, 1], shape (R, C, H, W).
        labels: as the loss wants them, R of them.
        task: what is predicted.
        losses: per image.
    """
    pixels = images.detach().clone().requires_grad_()
    parameters = dict(network.named_parameters())
    loss = losses(network(pixels), labels, task).mean()
    first = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    return {name: _norm_of_change(part, pixels) for name, part in zip(parameters, first, strict=True)}


def cut_slices(sizes: Sequence[int], sensitivities: Sequence[float], slices: int) -> NDArray[np.int64]:
    """Return the edges of `slices` runs of entries of equal summed sensitivity, shape (slices + 1,).

    Each tensor's sensitivity is spread evenly over its entries. Without any sensitivity, runs of equal length.

    Args:
        sizes: entries of each tensor.
        sensitivities: of each tensor, at least 0.
        slices: at least 1.
    """
    masses = np.asarray(sensitivities if sum(sensitivities) > 0 else sizes, dtype=np.float64)
    reached, ends = np.cumsum([0.0, *masses]), np.cumsum([0, *sizes])
    wanted = reached[-1] * np.arange(slices + 1) / slices
    edges: NDArray[np.int64] = np.rint(np.interp(wanted, reached, ends)).astype(np.int64)
    edges[0], edges[-1] = 0, ends[-1]
    return edges


def compensate(gradient: Mapping[str, Tensor], *, noise_stddev: float, ratio: float = 6.0) -> Parameters:
    """Return `gradient` without the directions that noise alone explains: what the server does to an aggregate.

    As a V x W matrix with V about `ratio` * W, whose covariance has eigenvalues between (1 - sqrt(W / V))^2 s^2 and
    (1 + sqrt(W / V))^2 s^2 where it holds noise of standard deviation s only (Marchenko and Pastur); those are removed.

    Deviation: padded with zeros to V x W, where the authors look for a divisor of the number of entries.

    Args:
        gradient: all entries, in order, form the matrix.
        noise_stddev: of the noise in each entry of the aggregate.
        ratio: V / W, at least 1.
    """
    flat = _flatten(gradient.values()).double()
    width = max(1, math.isqrt(int(flat.numel() / ratio)))
    height = math.ceil(flat.numel() / width)
    matrix = torch.nn.functional.pad(flat, (0, height * width - flat.numel())).view(height, width)
    values, vectors = torch.linalg.eigh(torch.cov(matrix.T).reshape(width, width))
    reach = math.sqrt(width / height)
    low, high = ((1 - reach) * noise_stddev) ** 2, ((1 + reach) * noise_stddev) ** 2
    kept = vectors[:, (values <= low) | (values >= high)]
    return _restore((matrix @ kept @ kept.T).reshape(-1)[: flat.numel()], gradient)


def _norm_of_change(part: Tensor, pixels: Tensor) -> float:
    if not part.requires_grad:
        return 0.0
    (moved,) = torch.autograd.grad(part.sum(), pixels, retain_graph=True, materialize_grads=True)
    return float(moved.flatten(1).norm(dim=1).mean())


def _clip_spans(flat: Tensor, spans: Sequence[Span], step: LocalStep, names: Sequence[str], norm: float) -> None:
    """Replace each span of `flat` by the mean over images of their parts of it, each of at most `norm`."""
    parameters = dict(step.network.named_parameters())
    for start, end in spans:
        flat[start:end] = 0
    for image, label in zip(step.images.split(1), step.labels.split(1), strict=True):
        loss = step.losses(step.network(image), label, step.task).sum()
        own = _flatten(torch.autograd.grad(loss, [parameters[name] for name in names]))
        for start, end in spans:
            part = own[start:end]
            flat[start:end] += part / max(1.0, float(part.norm()) / norm) / len(step.images)


def _flatten(values: Iterable[Tensor]) -> Tensor:
    return torch.cat([value.detach().reshape(-1) for value in values])


def _restore(flat: Tensor, like: Mapping[str, Tensor]) -> Parameters:
    parts = flat.split([value.numel() for value in like.values()])
    return {
        name: part.reshape(value.shape).to(value.dtype, copy=True)
        for part, (name, value) in zip(parts, like.items(), strict=True)
    }
