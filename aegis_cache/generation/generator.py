"""What every generator offers: images of given classes, and who it is. Read next: the module of the kind at hand."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from aegis_cache.store.manifest import GeneratorIdentity


class Generator(Protocol):
    """Makes images by class."""

    @property
    def identity(self) -> GeneratorIdentity:
        """Which generator this is, by everything its images depend on but labels and random numbers."""

    def generate(self, labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Return `n` images of each of `labels`.

        The same call with a random generator in the same state gives the same images on the same machine.

        Args:
            labels: int64 class indices, shape (L,).
            n: images per entry, at least 1.
            generator: CPU generator; every random number comes from it.

        Returns:
            float32 in [0, 1], shape (L * n, C, H, W): all `n` of the first entry, then of the second. The size is the
            generator's own; `federation.preprocessing.align` brings it to the task's.

        Raises:
            GenerationError: a class is unknown to it, or it cannot make images here.
        """
