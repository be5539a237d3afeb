"""Noise that a test can look at: none, or plain seeded draws that remember how strong they were asked to be."""

from __future__ import annotations

import torch
from torch import Tensor


class RecordedNoise:
    """Draws from a seeded generator; `silent` ones return zeros.

    Attributes:
        stddevs: of the draws so far, in order.
    """

    def __init__(self, seed: int = 0, *, silent: bool = False) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._silent = silent
        self.stddevs: list[float] = []

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        self.stddevs.append(stddev)
        draws = torch.randn(shape, generator=self._generator).to(device)
        return torch.zeros_like(draws) if self._silent else draws * stddev

    def uniform(self, count: int) -> Tensor:
        raise NotImplementedError
