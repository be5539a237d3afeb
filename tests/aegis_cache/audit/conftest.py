"""Images drawn from a known distribution, for oracles: many pixels, independent, two classes of different spread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from federation.datasets.image_set import ImageSet

Draw = Callable[[int, int], ImageSet]


@pytest.fixture
def draw() -> Draw:
    """Return a function of count and seed that gives Gaussian images of 8 x 8 pixels, classes 0 and 1 in turn."""

    def draw_images(count: int, seed: int) -> ImageSet:
        labels = np.arange(count, dtype=np.int64) % 2
        noise = np.random.default_rng(seed).normal(size=(count, 1, 8, 8))
        spread = np.where(labels == 0, 12.0, 30.0)[:, None, None, None]
        images = np.clip(np.round(128 + spread * noise), 0, 255).astype(np.uint8)
        return ImageSet(images=images, labels=labels)

    return draw_images
