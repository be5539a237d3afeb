"""Random images and candidates for the tests of the metrics."""

from __future__ import annotations

import numpy as np

from attacks.metrics.images import Images


def make_images(count: int, seed: int, *, shape: tuple[int, int, int] = (1, 12, 13)) -> Images:
    """Return random images in [0, 1]."""
    return np.random.default_rng(seed).random((count, *shape))


def make_nothing(count: int, *, shape: tuple[int, int, int] = (1, 12, 13)) -> Images:
    """Return candidates in which an attack found nothing."""
    return np.full((count, *shape), np.nan)


def at_psnr(real: Images, psnr_db: float) -> Images:
    """Return images in [0, 1] that lie at exactly this PSNR from `real`, all pixels of which are moved alike."""
    step = 10 ** (-psnr_db / 20)
    return np.where(real < 0.5, real + step, real - step)
