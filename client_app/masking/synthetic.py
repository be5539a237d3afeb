"""The synthetic images of one update: which of the cache, in which order, and how they are changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aegis_cache.store.cache import Cache
from client_app.augmentation import Augmentation, draw_offsets
from federation.preprocessing import to_unit_interval

_LARGEST_GAIN = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticImages:
    """Those of a cache that take part in an update; each is read from the disk when it is taken.

    Attributes:
        cache: where they lie.
        chosen: int64, shape (M,): their places in the cache.
        varied: whether they, and the real images beside them, are changed a little each time.
    """

    cache: Cache
    chosen: NDArray[np.int64]
    varied: bool = False

    def __len__(self) -> int:
        return len(self.chosen)

    def take(self, places: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the images at `places`, numbers from 0 to M - 1, and their class indices.

        Args:
            places: shape (N,).
            device: where they are wanted.

        Returns:
            Images as they lie in the cache, float32 in [0, 1], shape (N, C, H, W), and labels, int64, shape (N,).
        """
        wanted = self.chosen[places]
        images = to_unit_interval(torch.from_numpy(self.cache.take(wanted)).to(device))
        return images, torch.from_numpy(self.cache.labels[wanted]).to(device)

    def draw_variation(self, count: int, generator: torch.Generator) -> Augmentation:
        """Return how `count` images of a step are varied: shifted by up to two pixels, up to 5 % brighter or darker.

        Between two updates no image then adds the same gradient, also not at the same parameters, so that the
        difference of the updates does not cancel it. Real images of the step are varied alike: a shift repeats rows at
        the border, and bins along the difference of two rows would else tell synthetic images from real ones.

        Not guaranteed: that a server which averages many updates gains nothing.

        Args:
            count: how many, real and synthetic.
            generator: CPU generator.
        """
        if not self.varied:
            return Augmentation()
        gains = torch.rand(count, generator=generator).mul_(2 * _LARGEST_GAIN).add_(1 - _LARGEST_GAIN)
        return Augmentation(offsets=draw_offsets(count, generator), gains=gains)
