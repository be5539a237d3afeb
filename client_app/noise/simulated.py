"""Noise for simulations: reproducible from a seed, and for that reason private for nobody."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from client_app.noise.draw_bounds import count_normals, require_count
from federation.errors import ConfigurationError

_SEEDS = 1 << 63


@final
class SimulatedNoise:
    """A noise source that repeats itself: the same seed and the same calls give the same draws, on every device.

    Not guaranteed:
        Privacy, of any kind. Whoever knows or guesses the seed subtracts the noise; the generator is a Mersenne
        Twister, predictable from its output; float32 normals are not protected against inversion and end at 5.8
        standard deviations. It has the distribution of real noise for experiments, and nothing else.
    """

    def __init__(self, seed: int) -> None:
        """Start the stream of `seed`: 0 <= seed < 2^63.

        Raises:
            ConfigurationError: there is no such stream.
        """
        if not 0 <= seed < _SEEDS:
            raise ConfigurationError(f"Expected 0 <= seed={seed} < 2^63.")
        self._generator = torch.Generator(device="cpu").manual_seed(seed)

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        """Return float32 Gaussian noise of mean 0 and standard deviation `stddev` on `device`.

        Raises:
            PrivacyError: `stddev` or a size is impossible; nothing was drawn.
        """
        count = count_normals(shape, stddev)
        if count == 0 or stddev == 0:
            return torch.zeros(shape, dtype=torch.float32, device=device)
        draws = torch.randn(shape, generator=self._generator, dtype=torch.float32, device="cpu")
        return draws.mul_(float(stddev)).to(device)

    def uniform(self, count: int) -> Tensor:
        """Return `count` float64 numbers, uniform in [0, 1), on the CPU.

        Raises:
            PrivacyError: `count` is negative.
        """
        return torch.rand(require_count(count), generator=self._generator, dtype=torch.float64, device="cpu")
