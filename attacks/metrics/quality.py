"""How close a reconstruction is to the real image: PSNR and SSIM of each image, never of a batch.

A mean over a batch's squared errors, or one NaN, would let one image decide for all. Images in which an attack found
nothing, or that are not finite, are failures: 0 dB and an SSIM of 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from skimage.metrics import structural_similarity

from attacks.metrics.images import Images, Values, are_usable, check_images, clean_candidates
from federation.errors import DataError

PSNR_CAP_DB = 100.0
"""Exact copies reach infinity and near-exact ones 60 to 150 dB, which would decide every mean."""

SSIM_WINDOW = 11
_SSIM_SIGMA = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Psnr:
    """The PSNR of each image.

    Attributes:
        capped_db: float64 in [0, 100], shape (N,); what means and rates are taken of.
        raw_db: float64, shape (N,), without the cap; infinite for an exact copy.
    """

    capped_db: Values
    raw_db: Values


def measure_psnr(real: NDArray[np.floating], found: NDArray[np.floating]) -> Psnr:
    """Return 10 log10(1 / MSE) of each image, after `found` is clamped to [0, 1].

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        found: float, same shape; image n is the reconstruction of `real[n]`, NaN where there is none.

    Raises:
        DataError: the images do not fit.
    """
    checked, cleaned = _check_pairs(real, found)
    errors = np.square(cleaned - checked).mean(axis=(1, 2, 3))
    with np.errstate(divide="ignore"):
        raw = np.where(are_usable(cleaned), 10.0 * np.log10(1.0 / errors), 0.0)
    return Psnr(capped_db=np.minimum(raw, PSNR_CAP_DB), raw_db=raw)


def measure_ssim(real: NDArray[np.floating], found: NDArray[np.floating]) -> Values:
    """Return the SSIM of each image, float64 in [-1, 1], shape (N,); of colour images, the mean over channels.

    With the settings of Wang et al. (IEEE Trans. Image Process. 13, 2004, 600-612, section III.C): a Gaussian window of
    11 x 11 with sigma 1.5, population covariances, K1 = 0.01 and K2 = 0.03; only windows that lie inside the image.

    Args:
        real: float in [0, 1], shape (N, C, H, W), at least 11 high and wide.
        found: float, same shape; image n is the reconstruction of `real[n]`, NaN where there is none.

    Raises:
        DataError: the images do not fit, or are smaller than the window.
    """
    checked, cleaned = _check_pairs(real, found)
    if min(checked.shape[2:]) < SSIM_WINDOW:
        raise DataError(f"Expected images of at least {SSIM_WINDOW} x {SSIM_WINDOW} for SSIM, found {checked.shape}.")
    scores = np.zeros(len(checked))
    for index in np.flatnonzero(are_usable(cleaned)):
        scores[index] = structural_similarity(  # type: ignore[no-untyped-call]
            checked[index],
            cleaned[index],
            channel_axis=0,
            data_range=1.0,
            gaussian_weights=True,
            sigma=_SSIM_SIGMA,
            use_sample_covariance=False,
        )
    return scores


def _check_pairs(real: NDArray[np.floating], found: NDArray[np.floating]) -> tuple[Images, Images]:
    checked = check_images(real, "real images")
    cleaned = clean_candidates(found, checked)
    if len(cleaned) != len(checked):
        raise DataError(f"Expected one reconstruction for each of {len(checked)} images, found {len(cleaned)}.")
    return checked, cleaned
