"""Splits into train, validation and test, for images that bring none: files by what they are, phantoms by their class.

A split of a hospital's files must not depend on the other files there: if one image more moved others into or out of
the training images, two folders that differ in one image would be trained on sets that differ in hundreds, and no
differential privacy of training would speak of the folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from federation.config.tables import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet
from federation.errors import DataError
from federation.randomness import derive_seed, numpy_stream

_SPLITS = ("test", "validation", "train")
_DRAW_BYTES = 8


def split_pool(pool: ImageSet, info: DatasetInfo, data: DataConfig, *, seed: int) -> Dataset:
    """Return `pool` divided by `data.validation_fraction` and `data.test_fraction`, each image by what it is.

    An image's split is a function of the image's pixels, `seed` and the two fractions; where `pool.patients` is given,
    of its patient's number in place of the pixels. Hence an image (or patient) more or less leaves every other one in
    its split, the order of the pool decides nothing, exact copies of an image share a split (those of one patient,
    where patients are given), and so do all images of a patient.

    The fractions are those of the draw: sizes are binomial, and classes follow by chance only. Images that differ in
    one pixel draw independently. The order of the pool is kept inside each split.

    Args:
        pool: all images.
        info: what they are.
        data: the two fractions.
        seed: decides, with the image, where it goes.

    Raises:
        DataError: a split would be empty.
    """
    if pool.patients is None:
        draws = _draw(np.ascontiguousarray(pool.images), seed, "image")
    else:
        numbers, places = np.unique(pool.patients, return_inverse=True)
        draws = _draw(numbers.astype("<i8")[:, None], seed, "patient")[places.reshape(-1)]
    edges = [data.test_fraction, data.test_fraction + data.validation_fraction]
    return _divide(pool, info, data, np.digitize(draws, edges))


def split_stratified(pool: ImageSet, info: DatasetInfo, data: DataConfig, *, seed: int) -> Dataset:
    """Return `pool` divided by the fractions of `data`, to one image exactly and every class to two images.

    For generated images only: one image more moves others between the splits.

    Args:
        pool: all images.
        info: what they are.
        data: the two fractions.
        seed: decides which images go where; the same seed and labels give the same split.

    Raises:
        DataError: a split would be empty.
    """
    return _divide(pool, info, data, _place_by_class(pool.labels, data, seed))


def _divide(pool: ImageSet, info: DatasetInfo, data: DataConfig, places: NDArray[np.int64]) -> Dataset:
    """Return the data set in which image i is in the split number `places[i]` of `_SPLITS`."""
    chosen = {name: np.flatnonzero(places == number) for number, name in enumerate(_SPLITS)}
    for name, members in chosen.items():
        if not members.size:
            raise DataError(
                f"Expected at least one {name} image, found none of {len(pool)} with data.validation-fraction="
                f"{data.validation_fraction:g} and data.test-fraction={data.test_fraction:g}: add images or change "
                "the fractions."
            )
    splits = {name: pool.take(members) for name, members in chosen.items()}
    return Dataset.of_splits(info, splits, given_split=False)


def _draw(units: Iterable[NDArray[np.generic]], seed: int, kind: str) -> NDArray[np.float64]:
    """Return one number in [0, 1) for the bytes of each of `units`: its keyed BLAKE2b digest (RFC 7693) over 2^64."""
    key = derive_seed(seed, "split", kind).to_bytes(_DRAW_BYTES, "little")
    digests = b"".join(blake2b(unit.data, digest_size=_DRAW_BYTES, key=key).digest() for unit in units)
    return np.ldexp((np.frombuffer(digests, dtype="<u8") >> np.uint64(11)).astype(np.float64), -53)


def _place_by_class(labels: NDArray[np.int64], data: DataConfig, seed: int) -> NDArray[np.int64]:
    """Return every image's place in `_SPLITS`, shape (N,).

    Images are lined up by class, in random order within each, and held out at even distances along that line, which
    stratifies classes of any size, even of one image.
    """
    _, strata = np.unique(labels, axis=0, return_inverse=True)
    shuffled = numpy_stream(seed, "split").permutation(len(labels))
    line = shuffled[np.argsort(strata.reshape(-1)[shuffled], kind="stable")]
    places = np.full(len(labels), _SPLITS.index("train"))
    picked = _evenly(len(line), data.test_fraction)
    places[line[picked]] = _SPLITS.index("test")
    rest = line[~picked]
    held_out = _evenly(len(rest), data.validation_fraction / (1 - data.test_fraction))
    places[rest[held_out]] = _SPLITS.index("validation")
    return places


def _evenly(length: int, fraction: float) -> NDArray[np.bool_]:
    """Return a mask of shape (length,) that is true `round(length * fraction)` times, evenly spread."""
    reached = np.rint(np.arange(length + 1) * fraction)
    return np.asarray(np.diff(reached) > 0)
