"""Whether synthetic images lie closer to training images than fresh images do, class by class.

Nearest-neighbour tests find copies only, they prove nothing. Every number stands beside what held-out images show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aegis_cache.audit.distances import find_nearest
from aegis_cache.audit.duplicates import FACTOR, DuplicateFinder, Duplicates
from aegis_cache.audit.shares import Counts, Excess, Values, count_below, excess_of
from aegis_cache.features.extractor import FeatureExtractor
from aegis_cache.features.pixels import PixelFeatures
from federation.datasets.image_set import ImageSet
from federation.errors import DataError
from federation.preprocessing import to_unit_interval
from federation.randomness import numpy_stream

QUANTILE = 0.01
EVERYTHING = "all classes"
_FEWEST_HELD_OUT, _FEWEST_TRAIN = 4, 2
_WORST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """One class, or all, in one feature space.

    Attributes:
        space: the extractor's identity.
        group: name of the class, or `EVERYTHING`.
        train: number of training images.
        ratio_of_medians: median distance of synthetic images to their nearest training image, over that of held-out
            ones. For all classes, distances are first divided by their class's held-out median.
        ratio_of_first_percentiles: the same of first percentiles.
        null_ratio_of_medians: the same between the two halves of the held-out images: what chance alone gives.
        null_ratio_of_first_percentiles: the same of first percentiles.
        closer: share of images closer to train than the first percentile of held-out images.
        neighbour_ratio: the same of the ratio of distances to the nearest and the second nearest training image, which
            is near 0 for copies, however dense the training images lie there.
    """

    space: str
    group: str
    train: int
    ratio_of_medians: float
    ratio_of_first_percentiles: float
    null_ratio_of_medians: float
    null_ratio_of_first_percentiles: float
    closer: Excess
    neighbour_ratio: Excess

    @property
    def share_closer(self) -> float:
        """Share of synthetic images closer to train than the first percentile of held-out images."""
        return self.closer.synthetic_share

    @property
    def memorized_share(self) -> float:
        """The excess of `share_closer` over what held-out images show."""
        return self.closer.excess


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A synthetic image and its nearest training image; for eyes inside the hospital only.

    Attributes:
        space: the extractor's identity.
        synthetic: index of the synthetic image.
        train: index of the training image.
        relative_distance: their distance over the held-out median of the class.
    """

    space: str
    synthetic: int
    train: int
    relative_distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorizationReport:
    """What the audit found.

    Attributes:
        results: per feature space, all classes first, then each.
        duplicates: copies in pixels, of training images of any class.
        untested: classes with synthetic images, but too few others to say anything about distances.
        worst: per feature space the pairs that lie closest together, worst first.
    """

    results: tuple[GroupResult, ...]
    duplicates: Duplicates
    untested: tuple[str, ...]
    worst: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class _ClassDistances:
    """One class: distances to the nearest (first column) and second nearest training image, shape (N, 2) each."""

    name: str
    train: int
    synthetic: Values
    calibration: Values
    measured: Values
    pairs: NDArray[np.int64]


def audit_memorization(
    synthetic: ImageSet,
    train: ImageSet,
    held_out: ImageSet,
    extractors: Sequence[FeatureExtractor] = (),
    *,
    class_names: Sequence[str],
    seed: int,
    factor: float = FACTOR,
) -> MemorizationReport:
    """Return how close `synthetic` comes to `train`, beside how close fresh images come.

    Not guaranteed: anything about what was not measured. Images may tell of the training set without being near one of
    its images, and no bound for any single patient follows.

    Args:
        synthetic: what is audited.
        train: images that the generator, or whatever chose among its images, may have seen.
        held_out: images of the same kind that nothing has seen, best of other patients.
        extractors: feature spaces beside pixels.
        class_names: in the order of the labels.
        seed: divides the held-out images into two halves: one draws the line, one shows how many fresh images cross it.
        factor: as for `DuplicateFinder`.

    Raises:
        DataError: an image has several labels or an unknown one, shapes differ, or every class has too few images.
    """
    for images in (synthetic, train, held_out):
        _require_single_labels(images, train, len(class_names))
    present = np.unique(synthetic.labels).tolist()
    tested = [label for label in present if _is_testable(train, held_out, label)]
    if not tested:
        raise DataError(
            f"Expected a class with {_FEWEST_TRAIN} training and {_FEWEST_HELD_OUT} held-out images, found none."
        )
    halves = _halve(held_out, tested, seed)
    results: list[GroupResult] = []
    worst: list[Pair] = []
    for extractor in (PixelFeatures(), *extractors):
        vectors = tuple(extractor.extract(_unit(images)) for images in (synthetic, train, held_out))
        classes = [_measure(vectors, (synthetic, train), halves[label], label, class_names[label]) for label in tested]
        results += [_summarize(extractor.identity, EVERYTHING, classes)]
        results += [_summarize(extractor.identity, part.name, [part]) for part in classes]
        worst += _find_worst(extractor.identity, classes)
    return MemorizationReport(
        results=tuple(results),
        duplicates=DuplicateFinder(train.images, train.labels, factor=factor).find(synthetic.images),
        untested=tuple(class_names[label] for label in present if label not in tested),
        worst=tuple(worst),
    )


def _require_single_labels(images: ImageSet, like: ImageSet, classes: int) -> None:
    if len(images) == 0 or images.images.shape[1:] != like.images.shape[1:]:
        raise DataError(f"Expected images of shape {like.images.shape[1:]}, found {images.images.shape}.")
    if images.labels.ndim != 1:
        raise DataError(f"Expected one label per image to compare within classes, found {images.labels.shape}.")
    if images.labels.min() < 0 or images.labels.max() >= classes:
        raise DataError(f"Expected labels of {classes} classes, found another one.")


def _is_testable(train: ImageSet, held_out: ImageSet, label: int) -> bool:
    few = (train.labels == label).sum() < _FEWEST_TRAIN or (held_out.labels == label).sum() < _FEWEST_HELD_OUT
    return not few


def _halve(held_out: ImageSet, labels: Sequence[int], seed: int) -> dict[int, tuple[Tensor, Tensor]]:
    halves = {}
    for label in labels:
        order = numpy_stream(seed, "audit", "halves", label).permutation(np.flatnonzero(held_out.labels == label))
        first, second = np.array_split(order, 2)
        halves[label] = torch.from_numpy(first), torch.from_numpy(second)
    return halves


def _measure(
    vectors: tuple[Tensor, ...],
    sets: tuple[ImageSet, ImageSet],
    halves: tuple[Tensor, Tensor],
    label: int,
    name: str,
) -> _ClassDistances:
    synthetic, train, held_out = vectors
    ours, theirs = (np.flatnonzero(images.labels == label) for images in sets)
    references = train[torch.from_numpy(theirs)]
    found = find_nearest(synthetic[torch.from_numpy(ours)], references, k=2)
    calibration, measured = (find_nearest(held_out[half], references, k=2).distances.numpy() for half in halves)
    pairs = np.stack([ours, theirs[found.indices[:, 0].numpy()]], axis=1)
    return _ClassDistances(name, len(theirs), found.distances.numpy(), calibration, measured, pairs)


def _summarize(space: str, group: str, classes: Sequence[_ClassDistances]) -> GroupResult:
    scales = [_scale(part) for part in classes]
    ours = _pool([part.synthetic for part in classes], scales)
    calibration = _pool([part.calibration for part in classes], scales)
    measured = _pool([part.measured for part in classes], scales)
    theirs = np.concatenate([calibration, measured])
    return GroupResult(
        space=space,
        group=group,
        train=sum(part.train for part in classes),
        ratio_of_medians=_quotient(ours, theirs, 0.5),
        ratio_of_first_percentiles=_quotient(ours, theirs, QUANTILE),
        null_ratio_of_medians=_quotient(measured, calibration, 0.5),
        null_ratio_of_first_percentiles=_quotient(measured, calibration, QUANTILE),
        closer=excess_of(
            [_count(part.synthetic[:, 0], part.calibration[:, 0], part.measured[:, 0]) for part in classes]
        ),
        neighbour_ratio=excess_of(
            [_count(*(_ratios(each) for each in (part.synthetic, part.calibration, part.measured))) for part in classes]
        ),
    )


def _count(synthetic: Values, calibration: Values, measured: Values) -> Counts:
    return count_below(synthetic, calibration, measured, quantile=QUANTILE)


def _pool(distances: Sequence[Values], scales: Sequence[float]) -> Values:
    """Return all distances to the nearest training image, each divided by the scale of its class."""
    return np.concatenate([values[:, 0] / scale for values, scale in zip(distances, scales, strict=True)])


def _scale(part: _ClassDistances) -> float:
    """Return the median held-out distance of a class, or 1 where fresh images are copies already."""
    return float(np.median(np.concatenate([part.calibration, part.measured])[:, 0])) or 1.0


def _quotient(ours: Values, theirs: Values, quantile: float) -> float:
    """Return the quotient of two quantiles: 1 for 0 / 0, infinity for other divisions by 0."""
    above, below = float(np.quantile(ours, quantile)), float(np.quantile(theirs, quantile))
    if below > 0:
        return above / below
    return 1.0 if above == 0 else float("inf")


def _ratios(distances: Values) -> Values:
    """Return nearest over second nearest distance, 0 for copies."""
    nearest, second = distances[:, 0], distances[:, 1]
    return np.divide(nearest, second, out=np.zeros_like(nearest), where=second > 0)


def _find_worst(space: str, classes: Sequence[_ClassDistances]) -> list[Pair]:
    pairs = [
        Pair(space=space, synthetic=int(ours), train=int(theirs), relative_distance=float(distance) / _scale(part))
        for part in classes
        for (ours, theirs), distance in zip(part.pairs, part.synthetic[:, 0], strict=True)
    ]
    return sorted(pairs, key=lambda pair: pair.relative_distance)[:_WORST]


def _unit(images: ImageSet) -> Tensor:
    return to_unit_interval(torch.from_numpy(images.images.copy()))
