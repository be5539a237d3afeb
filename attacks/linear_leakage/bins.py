"""Bins: a direction in which images are measured, and rising thresholds between which few images fall together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde, norm

from attacks.threat_model import ServerView
from federation.errors import DataError

DirectionName = Literal["mean", "dct", "random", "learned"]
ThresholdRule = Literal["gaussian", "empirical", "kde"]
_KDE_POINTS = 20_000
_RIDGE = 1e-2


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Bins:
    """k bins; bin i holds the images with thresholds[i] < h <= thresholds[i + 1], the last one all above.

    Attributes:
        direction: v, float64, shape (n,), n = C * H * W; an image x is measured as h = <v, x>.
        thresholds: float64, rising, shape (k,); no image of the kind lies below the first.
        top: what no image of the kind exceeds; the upper end of the last bin.
    """

    direction: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    top: float

    def __len__(self) -> int:
        return len(self.thresholds)

    @property
    def middles(self) -> NDArray[np.float64]:
        """The middle of each bin, shape (k,); of the outermost two, the end that lies inwards."""
        ends = np.append(self.thresholds[1:], self.thresholds[-1])
        middles: NDArray[np.float64] = (self.thresholds + ends) / 2
        middles[0] = self.thresholds[min(1, len(self) - 1)]
        return middles

    def place(self, measured: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the bin of each measurement, -1 below the first threshold: int64, shape (N,)."""
        places: NDArray[np.int64] = np.searchsorted(self.thresholds, measured, side="left").astype(np.int64) - 1
        return places


def make_bins(
    view: ServerView,
    capacity: int,
    *,
    direction: DirectionName = "mean",
    rule: ThresholdRule = "gaussian",
    crowd: int = 0,
) -> Bins:
    """Return bins that images like the server's fill evenly.

    Args:
        view: with auxiliary images; "learned" needs images of the generator, too.
        capacity: k, at least 2.
        direction: "mean" (Fowl et al., arXiv 2110.13057, section 4.1), "dct": a cosine of a random low frequency,
            "random": Gaussian without mean, "learned": the one that tells real from generated images best in the
            sense of Fisher's linear discriminant.
        rule: equal masses of a normal distribution fitted to the auxiliary measurements, of the measurements
            themselves, or of a kernel density estimate.
        crowd: images that a server expects in all, more than k: then all bins but two have the mass of one image,
            around the median, and the outermost two take in the rest (`federation.occupancy.crowded_verbatim_share`).
            0: equal masses.

    Raises:
        DataError: images that are needed are not there, or there are fewer than two bins.
    """
    if capacity < 2:
        raise DataError(f"Expected at least 2 bins, found {capacity}.")
    auxiliary = view.require_auxiliary()
    flat = auxiliary.reshape(len(auxiliary), -1).astype(np.float64)
    chosen = _direction(view, flat, direction)
    measured = flat @ chosen
    spread = float(measured.std()) or 1.0
    low, high = _reach(chosen) if direction == "mean" else _estimate_reach(measured, spread)
    levels = np.arange(1, capacity) / capacity
    if crowd > capacity:
        levels = 0.5 + (np.arange(1, capacity) - capacity / 2) / crowd
    inner = _quantiles(measured, levels, rule, view.stream)
    thresholds = np.maximum.accumulate(np.concatenate([[low - 0.01 * spread], inner]))
    return Bins(direction=chosen, thresholds=_apart(thresholds, spread), top=max(high, float(thresholds[-1]) + spread))


def _reach(direction: NDArray[np.float64]) -> tuple[float, float]:
    """Return the least and the greatest measurement of any image in [0, 1]."""
    return float(direction.clip(max=0).sum()), float(direction.clip(min=0).sum())


def _estimate_reach(measured: NDArray[np.float64], spread: float) -> tuple[float, float]:
    """Return ends that images of the kind do not pass; pixels anywhere in [0, 1] would reach much further."""
    return float(measured.min()) - 6 * spread, float(measured.max()) + 6 * spread


def _direction(view: ServerView, flat: NDArray[np.float64], name: DirectionName) -> NDArray[np.float64]:
    size = flat.shape[1]
    if name == "mean":
        return np.full(size, 1 / size)
    if name == "random":
        drawn: NDArray[np.float64] = np.asarray(view.stream.standard_normal(size))
        return _unit(drawn - drawn.mean())
    if name == "dct":
        order = int(view.stream.integers(1, 33))
        wave = np.cos(math.pi / size * (np.arange(size) + 0.5) * order)
        return _unit(wave)
    generated = view.require_generated()
    return find_fisher_direction(flat, generated.reshape(len(generated), -1).astype(np.float64))


def find_fisher_direction(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the unit vector along which two sets differ most against their spread (Fisher, 1936), with a ridge.

    Args:
        first: rows, shape (N, D), at least two.
        second: rows, shape (M, D), at least two; they lie lower along the direction.
    """
    within = np.cov(first, rowvar=False) + np.cov(second, rowvar=False)
    within += _RIDGE * np.trace(within) / first.shape[1] * np.eye(first.shape[1])
    return _unit(np.linalg.solve(within, first.mean(axis=0) - second.mean(axis=0)))


def _unit(direction: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled: NDArray[np.float64] = direction / np.linalg.norm(direction)
    return scaled


def _quantiles(
    measured: NDArray[np.float64], levels: NDArray[np.float64], rule: ThresholdRule, stream: np.random.Generator
) -> NDArray[np.float64]:
    if rule == "gaussian":
        usual: NDArray[np.float64] = norm(measured.mean(), measured.std() or 1.0).ppf(levels)
        return usual
    if rule == "kde":
        measured = gaussian_kde(measured).resample(_KDE_POINTS, seed=stream)[0]
    found: NDArray[np.float64] = np.quantile(measured, levels)
    return found


def _apart(thresholds: NDArray[np.float64], spread: float) -> NDArray[np.float64]:
    """Return the thresholds, equal ones moved apart by a millionth of the spread; nearer ones may be one in float32."""
    moved: NDArray[np.float64] = np.maximum.accumulate(thresholds + 1e-6 * spread * np.arange(len(thresholds)))
    return moved
