"""Where noise comes from, as one interface with two implementations that never mix.

A deployed hospital draws from `client_app.noise.cryptographic`, which takes no seed; a simulated one from
`client_app.noise.simulated`, which needs one. Both mechanisms (DP-SGD and update perturbation) and the Poisson
sampling of DP-SGD draw from here and from nowhere else.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class NoiseSource(Protocol):
    """A stream of independent draws."""

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        """Return float32 Gaussian noise of mean 0 and standard deviation `stddev` (>= 0) on `device`."""

    def uniform(self, count: int) -> Tensor:
        """Return `count` float64 numbers, uniform in [0, 1), on the CPU."""
