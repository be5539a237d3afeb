"""Gradient compression: of each tensor, only the entries of largest magnitude leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.defences.defence import Defence, LocalStep
from federation.errors import DataError
from federation.parameters import Parameters

_ROUNDING = 1e-9


def prune_smallest(values: Tensor, share: float) -> Tensor:
    """Return `values` with its floor(share * size) entries of smallest magnitude set to zero, at any shape.

    Deviation: exactly that many, where a threshold at a percentile would keep or drop all that are equal to it.
    """
    flat = values.detach().reshape(-1)
    keep = flat.numel() - math.floor(share * flat.numel() + _ROUNDING)
    kept = flat.abs().topk(keep, sorted=False).indices
    return torch.zeros_like(flat).index_copy_(0, kept, flat[kept]).view_as(values)


@dataclass(frozen=True, kw_only=True)
class Pruning(Defence):
    """Gradient compression, GC (Zhu et al., arXiv 1906.08935, section 5; the rule of Lin et al., arXiv 1712.01887).

    Deviation: what is pruned is lost; there, it is kept and sent with a later step.

    Attributes:
        share: of each tensor's entries that is set to zero, in [0, 1).
    """

    share: float = 0.8

    def __post_init__(self) -> None:
        """Check the share.

        Raises:
            DataError: it is out of range.
        """
        if not 0 <= self.share < 1:
            raise DataError(f"Expected a pruned share of at least 0 and below 1, found {self.share}.")

    @property
    def name(self) -> str:
        """GC with the share in percent."""
        return f"gc-{100 * self.share:g}"

    @property
    def source(self) -> str:
        """The paper."""
        return "arXiv 1906.08935, section 5"

    def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
        """Return `gradient` with the share of smallest magnitude of each tensor set to zero."""
        del step
        return {name: prune_smallest(value, self.share) for name, value in gradient.items()}
