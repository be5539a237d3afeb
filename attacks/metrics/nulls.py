"""What a guess without any update reaches: the line above which a reconstruction begins to say something.

On chest X-rays the mean image, made as bright as a bin says, passes 18 dB for most images, and so does the nearest of
some thousand foreign images for nearly all. A rate of recovery is a leak only where it exceeds these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attacks.metrics.images import Images, Values, brightness_of, check_images
from attacks.metrics.pairing import pair_by_best
from attacks.metrics.quality import measure_psnr
from federation.errors import DataError

NullName = Literal["mean", "scaled-mean", "same-bin", "nearest-synthetic", "best-foreign"]
_CALIBRATION_PERCENTILE = 99.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Null:
    """Guesses that use no update.

    Attributes:
        name: how they were made.
        images: float64 in [0, 1], shape (N, C, H, W); image n is the guess for real image n.
    """

    name: NullName
    images: Images


def guess_mean(real: NDArray[np.floating], auxiliary: NDArray[np.floating]) -> Null:
    """Return the mean auxiliary image for every real image.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        auxiliary: float in [0, 1], shape (A, C, H, W), the server's own images.

    Raises:
        DataError: the images do not fit.
    """
    checked, known = _check_both(real, auxiliary)
    return Null(name="mean", images=np.broadcast_to(known.mean(axis=0), checked.shape).copy())


def guess_scaled_mean(real: NDArray[np.floating], auxiliary: NDArray[np.floating]) -> Null:
    """Return the mean auxiliary image scaled to each real image's brightness, which is what its bin tells.

    Clamped to [0, 1]. Where the mean is black everywhere, a grey image of that brightness.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        auxiliary: float in [0, 1], shape (A, C, H, W).

    Raises:
        DataError: the images do not fit.
    """
    checked, known = _check_both(real, auxiliary)
    mean = known.mean(axis=0)
    shape = mean / mean.mean() if mean.any() else np.ones_like(mean)
    scaled = brightness_of(checked)[:, None, None, None] * shape
    return Null(name="scaled-mean", images=np.minimum(scaled, 1.0))


def guess_same_bin(
    real: NDArray[np.floating], synthetic: NDArray[np.floating], edges: Values, *, stream: np.random.Generator
) -> Null:
    """Return for each real image a random synthetic one from the same bin of brightness.

    Where that bin holds no synthetic image, the one nearest in brightness: a guess must be made, and it is the best.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        synthetic: float in [0, 1], shape (M, C, H, W).
        edges: rising thresholds of brightness, shape (k - 1,); a bin takes in its upper edge, as a ReLU's does.
        stream: draws the images.

    Raises:
        DataError: the images do not fit, or the edges do not rise.
    """
    checked, pool = _check_both(real, synthetic)
    if edges.ndim != 1 or not bool((np.diff(edges) > 0).all()):
        raise DataError("Expected rising edges in one row.")
    wanted, offered = brightness_of(checked), brightness_of(pool)
    homes, bins = np.searchsorted(edges, wanted), np.searchsorted(edges, offered)
    chosen = np.abs(wanted[:, None] - offered).argmin(axis=1)
    for index, home in enumerate(homes):
        same = np.flatnonzero(bins == home)
        if len(same):
            chosen[index] = stream.choice(same)
    return Null(name="same-bin", images=pool[chosen])


def guess_nearest_synthetic(real: NDArray[np.floating], synthetic: NDArray[np.floating]) -> Null:
    """Return for each real image the synthetic one with the least mean squared error.

    No attacker can choose so without knowing the real image: an upper bound of what the cache alone looks like.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        synthetic: float in [0, 1], shape (M, C, H, W).

    Raises:
        DataError: the images do not fit.
    """
    return Null(name="nearest-synthetic", images=_nearest(real, synthetic))


def guess_best_foreign(
    real: NDArray[np.floating], foreign: NDArray[np.floating], count: int, *, stream: np.random.Generator
) -> Null:
    """Return for each real image the nearest of `count` random images of other people.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        foreign: float in [0, 1], shape (F, C, H, W), real images that had no part in training.
        count: M, from 1 to F; drawn once for all real images, without repetition.
        stream: draws them.

    Raises:
        DataError: the images do not fit, or there are fewer than `count`.
    """
    if not 1 <= count <= len(foreign):
        raise DataError(f"Expected 1 <= count={count} <= {len(foreign)} foreign images.")
    drawn = stream.choice(len(foreign), size=count, replace=False)
    return Null(name="best-foreign", images=_nearest(real, foreign[drawn]))


def calibrate_threshold_db(
    real: NDArray[np.floating], foreign: NDArray[np.floating], count: int, *, stream: np.random.Generator
) -> float:
    """Return tau*: the PSNR in dB that the best of `count` foreign images passes for one real image in a hundred.

    The 99th percentile, interpolated linearly; capped at 100 dB as every PSNR.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        foreign: float in [0, 1], shape (F, C, H, W).
        count: M, from 1 to F.
        stream: draws the foreign images.

    Raises:
        DataError: the images do not fit, or there are fewer than `count`.
    """
    guess = guess_best_foreign(real, foreign, count, stream=stream)
    return float(np.percentile(measure_psnr(real, guess.images).capped_db, _CALIBRATION_PERCENTILE))


def _nearest(real: NDArray[np.floating], pool: NDArray[np.floating]) -> Images:
    checked, offered = _check_both(real, pool)
    return offered[pair_by_best(checked, offered).candidate_of]


def _check_both(real: NDArray[np.floating], pool: NDArray[np.floating]) -> tuple[Images, Images]:
    checked, offered = check_images(real, "real images"), check_images(pool, "images to guess from")
    if checked.shape[1:] != offered.shape[1:]:
        raise DataError(f"Expected images to guess from of shape {checked.shape[1:]}, found {offered.shape[1:]}.")
    return checked, offered
