"""Convolutions that pass the image on or shut it out, in place of looking at it."""

from __future__ import annotations

import torch
from torch import Tensor

from client_app.model_guard.finding import Finding

_ONE_TAP = 0.9
_EVEN = 0.98
_NOTHING = 1e-6
_LEAST_TAPS = 9


def find_plain_kernels(name: str, kernels: Tensor) -> Finding | None:
    """Return a finding where a filter has a single weight that counts, none at all, or the same weight everywhere.

    Identity kernels carry an image to the layer that reads it (arXiv 2112.02918; arXiv 2303.12233), zeros keep one
    hospital's block of channels apart from the others'. Of the filters of trained models the largest weight has
    0.62 of the energy or less, in all that were measured.

    Args:
        name: of the parameter.
        kernels: shape (filters, inputs, height, width); of less than 9 weights per filter nothing is said.
    """
    filters = kernels.flatten(1)
    if filters.shape[1] < _LEAST_TAPS:
        return None
    energy = filters.square().sum(dim=1)
    empty = energy.sqrt() < _NOTHING
    passing = ~empty & (filters.square().amax(dim=1) > _ONE_TAP * energy)
    even = ~empty & (filters.mean(dim=1).square() * filters.shape[1] > _EVEN * energy)
    counts = [int(torch.count_nonzero(kind)) for kind in (passing, empty, even)]
    if not any(counts):
        return None
    return Finding(
        check="plain-kernels",
        tensor=name,
        found=f"of {len(filters)} filters {counts[0]} with a single weight, {counts[1]} of zeros, {counts[2]} even",
        expected="none",
    )
