"""The plainest features: the pixels themselves, on demand averaged over small squares."""

from __future__ import annotations

import hashlib

from torch import Tensor
from torch.nn import functional

from aegis_cache.features.extractor import extract_in_batches


class PixelFeatures:
    """Pixels in [0, 1], one after the other.

    Attributes:
        identity: name and digest; the digest covers the pooling, there is nothing else.
    """

    def __init__(self, pool: int = 1) -> None:
        """Average over squares of `pool` pixels per side, those at the right and bottom border being smaller.

        Raises:
            ValueError: `pool` is below 1.
        """
        if pool < 1:
            raise ValueError(f"Expected pool={pool} >= 1.")
        self._pool = pool
        name = f"pixels, pool {pool}"
        self.identity = f"{name} sha256:{hashlib.sha256(name.encode()).hexdigest()}"

    def extract(self, images: Tensor) -> Tensor:
        """Return the pixels as `FeatureExtractor.extract` says; F is C times the number of squares."""
        return extract_in_batches(images, self._pooled)

    def _pooled(self, batch: Tensor) -> Tensor:
        return functional.avg_pool2d(batch, self._pool, ceil_mode=True, count_include_pad=False)
