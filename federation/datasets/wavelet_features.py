"""Fixed wavelet features in place of pixels: public filters, nothing learnt, computed once per image.

Under differential privacy few parameters on good fixed features beat many on raw pixels (Tramer and Boneh, arXiv
2011.11660). A feature of one image depends on that image alone, so that computing them costs no privacy.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from federation.datasets.image_set import Dataset, ImageSet
from federation.errors import DataError

CHANNELS = 24
STRIDE = 4
_RADII = (4, 7, 13)
_ORIENTATIONS = 8
_SLANT = 0.5
_OFFSET = 1e-3
_LEVELS = 255
_POOL_RADIUS, _POOL_STDDEV = 5, 1.6
_SMALLEST_SIDE = 2 * max(_RADII) + 2
_BATCH = 256


def replace_by_features(dataset: Dataset) -> Dataset:
    """Return `dataset` with wavelet features as images of shape (24, H/4, W/4).

    Raises:
        DataError: the images are not grey, or smaller than the largest filter.
    """
    info = dataset.info
    if info.channels != 1 or min(info.height, info.width) < _SMALLEST_SIDE:
        raise DataError(
            f"Expected grey images of at least {_SMALLEST_SIDE} x {_SMALLEST_SIDE} pixels for data.features='wavelet', "
            f"found {info.channels} channels of {info.height} x {info.width}."
        )
    height, width = math.ceil(info.height / STRIDE), math.ceil(info.width / STRIDE)
    described = info.resized(channels=CHANNELS, height=height, width=width)
    return dataset.map_splits(_replace_split).described(described)


def wavelet_features(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return log moduli of Morlet wavelet coefficients in 256 levels: uint8, shape (N, 24, ceil(H/4), ceil(W/4)).

    Scale j = 0, 1, 2 and orientation pi l / 8: an even and an odd filter of width 0.8 * 2^j and frequency
    0.75 pi / 2^j (Bruna and Mallat, arXiv 1203.1513, section 2, first order), applied with periodic borders; the
    modulus is averaged by a Gaussian of 1.6 pixels on every fourth pixel, and its logarithm, from log 0.001 to
    log 1.001, told in 256 levels.

    Deviation: eight orientations of a slanted envelope without Mallat's normalization, no second order, no low-pass
    channel, and a logarithm.

    Args:
        images: uint8, shape (N, 1, H, W), each side at least 28.
    """
    parts = [_transform(torch.from_numpy(np.array(images[start : start + _BATCH]))) for start in _starts(len(images))]
    return np.concatenate(parts)


def _starts(count: int) -> range:
    return range(0, max(count, 1), _BATCH)


def _transform(images: Tensor) -> NDArray[np.uint8]:
    pixels = images.to(torch.float32) / 255
    moduli = torch.cat([_pool(_modulus(pixels, scale)) for scale in range(len(_RADII))], dim=1)
    share = (moduli.clamp(0, 1).add(_OFFSET).log() - math.log(_OFFSET)) / (math.log(1 + _OFFSET) - math.log(_OFFSET))
    return share.mul(_LEVELS).round().to(torch.uint8).numpy()


def _modulus(pixels: Tensor, scale: int) -> Tensor:
    even, odd = _filters(scale)
    padded = functional.pad(pixels, [_RADII[scale]] * 4, mode="circular")
    return (functional.conv2d(padded, even) ** 2 + functional.conv2d(padded, odd) ** 2).sqrt()


def _filters(scale: int) -> tuple[Tensor, Tensor]:
    """Return the even and the odd filters of one scale, both of shape (8, 1, 2 r + 1, 2 r + 1)."""
    stddev, frequency, radius = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, _RADII[scale]
    steps = torch.arange(-radius, radius + 1, dtype=torch.float64)
    rows, columns = torch.meshgrid(steps, steps, indexing="ij")
    even, odd = [], []
    for orientation in range(_ORIENTATIONS):
        angle = math.pi * orientation / _ORIENTATIONS
        along = math.cos(angle) * columns + math.sin(angle) * rows
        across = -math.sin(angle) * columns + math.cos(angle) * rows
        envelope = (
            torch.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * stddev**2)) * _SLANT / (2 * math.pi * stddev**2)
        )
        wave = envelope * torch.cos(frequency * along)
        even.append(wave - envelope * (wave.sum() / envelope.sum()))
        odd.append(envelope * torch.sin(frequency * along))
    return torch.stack(even)[:, None].float(), torch.stack(odd)[:, None].float()


def _pool(moduli: Tensor) -> Tensor:
    steps = torch.arange(-_POOL_RADIUS, _POOL_RADIUS + 1, dtype=torch.float32)
    line = torch.exp(-(steps**2) / (2 * _POOL_STDDEV**2))
    window = torch.outer(line, line)
    channels = moduli.shape[1]
    kernel = (window / window.sum()).expand(channels, 1, -1, -1)
    padded = functional.pad(moduli, [_POOL_RADIUS] * 4, mode="circular")
    return functional.conv2d(padded, kernel, stride=STRIDE, groups=channels)


def _replace_split(split: ImageSet) -> ImageSet:
    return ImageSet(images=wavelet_features(split.images), labels=split.labels, patients=split.patients)
