"""Whether synthetic images are spread like real ones along the directions that a leak layer cuts into bins.

A malicious server that plants a layer with k bins of brightness, or of a random projection, reads an image that is
alone in its bin (arXiv 2110.13057, section 3). Synthetic images protect only the bins that they fall into; brighter by
a tenth, and an attacker recovers twice as much. So their distributions are compared, not their looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from federation.datasets.image_set import ImageSet
from federation.randomness import numpy_stream

BINS = 1024
_PROJECTIONS = 8
_ROBUST = 16
FEWEST_TO_TEST = 100
"""With fewer images of either kind, chance explains almost any difference: nothing can be said about coverage."""

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How synthetic images cover what real ones fill.

    Attributes:
        brightness_ks: largest distance between the distribution functions of mean brightness.
        projection_ks: the same along random projections, the worst of them.
        overlap: share of the synthetic images that quantile bins of the real ones hold in equal parts.
        resampled_overlap: what as many images drawn from the real ones reach on average.
        protected: share of real images whose bin holds at least one synthetic image.
    """

    brightness_ks: float
    projection_ks: float
    overlap: float
    resampled_overlap: float
    protected: float

    @property
    def occupancy_overlap(self) -> float:
        """`overlap` relative to what real images would reach."""
        return self.overlap / self.resampled_overlap

    def as_dict(self) -> dict[str, float]:
        """Return all numbers under kebab-case keys."""
        found = {name.replace("_", "-"): getattr(self, name) for name in type(self).__dataclass_fields__}
        return {**found, "occupancy-overlap": self.occupancy_overlap}


def measure_coverage(synthetic: NDArray[np.uint8], real: NDArray[np.uint8], *, bins: int = BINS) -> Coverage:
    """Return how `synthetic` covers `real`, both uint8 of shape (N, C, H, W) with at least one image."""
    bright, like = brightness(synthetic), brightness(real)
    width = min(bins, len(real))
    counts = _count_by_quantiles(bright, like, width)
    real_counts = _count_by_quantiles(like, like, width)
    projected = zip(_project(synthetic), _project(real), strict=True)
    return Coverage(
        brightness_ks=ks_distance(bright, like),
        projection_ks=max(ks_distance(found, expected) for found, expected in projected),
        overlap=float(np.minimum(counts / len(bright), real_counts / len(like)).sum()),
        resampled_overlap=_resampled(real_counts / len(like), len(bright)),
        protected=float(real_counts[counts > 0].sum() / len(like)),
    )


def match_proportions(real: ImageSet, labels: NDArray[np.int64], *, seed: int = 0) -> ImageSet:
    """Return as many of `real` as have the class proportions of `labels`, drawn by `seed`.

    Classes are not equally bright, so images in other proportions would differ from all real ones without any fault. A
    class that `real` lacks is passed over.
    """
    wanted = np.bincount(labels)
    held = np.bincount(real.labels, minlength=len(wanted))[: len(wanted)]
    both = (wanted > 0) & (held > 0)
    scale = (held[both] / wanted[both]).min()
    order = numpy_stream(seed, "coverage", "proportions").permutation(len(real))
    chosen = [order[real.labels[order] == label][: int(scale * wanted[label])] for label in np.flatnonzero(both)]
    return real.take(np.sort(np.concatenate(chosen)))


def robust_overlap(synthetic: NDArray[np.uint8], real: NDArray[np.uint8]) -> float:
    """Return the relative overlap over bins that hold sixteen real images each, at most 1024 bins.

    Bins of a few real images are filled unevenly by chance, and fresh images of the same distribution would seem to
    miss some of them.
    """
    return measure_coverage(synthetic, real, bins=max(1, min(BINS, len(real) // _ROBUST))).occupancy_overlap


def brightness(images: NDArray[np.uint8]) -> Values:
    """Return the mean grey level of each image in [0, 1], float64, shape (N,)."""
    means: Values = images.reshape(len(images), -1).mean(axis=1, dtype=np.float64) / 255
    return means


def ks_distance(left: Values, right: Values) -> float:
    """Return the two-sample Kolmogorov-Smirnov statistic of two samples, neither empty."""
    left, right = np.sort(left), np.sort(right)
    points = np.concatenate([left, right])
    below_left = np.searchsorted(left, points, side="right") / len(left)
    below_right = np.searchsorted(right, points, side="right") / len(right)
    return float(np.abs(below_left - below_right).max())


def ks_allowance(left: int, right: int) -> float:
    """Return what the statistic of two samples of one distribution stays below with probability 0.99 (asymptotic)."""
    return 1.628 * math.sqrt((left + right) / (left * right))


def expected_protection(images: int, *, bins: int = BINS) -> float:
    """Return the share of real images that share their bin with one of so many perfect synthetic ones.

    1 - (1 - 1/k)^M for M images and k equally filled bins: a game of numbers that no quality wins.
    """
    return 1 - (1 - 1 / bins) ** images


def _count_by_quantiles(values: Values, real: Values, bins: int) -> NDArray[np.int64]:
    """Return how many of `values` lie in each of `bins` bins that divide `real` into equal parts."""
    edges = np.quantile(real, np.linspace(0, 1, bins + 1)[1:-1])
    return np.bincount(np.searchsorted(edges, values, side="right"), minlength=bins)


def _resampled(shares: Values, count: int) -> float:
    """Return the expected overlap of `count` draws with the distribution `shares` that they are drawn from."""
    stream = numpy_stream(0, "coverage", "resampled")
    drawn = stream.multinomial(count, shares / shares.sum(), size=20) / count
    return float(np.minimum(drawn, shares).sum(axis=1).mean())


def _project(images: NDArray[np.uint8]) -> list[Values]:
    """Return the images along fixed random directions."""
    flat = images.reshape(len(images), -1).astype(np.float64) / 255
    directions = numpy_stream(0, "coverage", "projections", flat.shape[1]).normal(size=(flat.shape[1], _PROJECTIONS))
    return list((flat @ (directions / np.linalg.norm(directions, axis=0))).T)
