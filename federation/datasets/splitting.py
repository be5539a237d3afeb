"""A stratified split of pooled data into train, validation and test, for data that bring no split of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from federation.config.tables import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet
from federation.errors import DataError
from federation.randomness import numpy_stream


def split_pool(pool: ImageSet, info: DatasetInfo, data: DataConfig, *, seed: int) -> Dataset:
    """Return `pool` divided by `data.validation_fraction` and `data.test_fraction`.

    The held-out sizes are exact to one image over the whole pool; every class follows to within two images. The order
    of the pool is kept inside each split.

    Args:
        pool: all images.
        info: what they are.
        data: the two fractions.
        seed: decides which images go where; the same seed and pool give the same split.

    Raises:
        DataError: a split would be empty.
    """
    held_for_test, held_for_validation = _hold_out(pool.labels, data, seed)
    chosen = {
        "train": ~(held_for_test | held_for_validation),
        "validation": held_for_validation,
        "test": held_for_test,
    }
    for name, members in chosen.items():
        if not members.any():
            raise DataError(
                f"Expected at least one {name} image, found none of {len(pool)} with data.validation-fraction="
                f"{data.validation_fraction:g} and data.test-fraction={data.test_fraction:g}: add images or raise it."
            )
    splits = {name: pool.take(np.flatnonzero(members)) for name, members in chosen.items()}
    return Dataset.of_splits(info, splits, given_split=False)


def _hold_out(labels: NDArray[np.int64], data: DataConfig, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the masks of test and of validation images, both of shape (N,).

    Images are lined up by class, in random order within each, and held out at even distances along that line, which
    stratifies classes of any size, even of one image.
    """
    _, strata = np.unique(labels, axis=0, return_inverse=True)
    shuffled = numpy_stream(seed, "split").permutation(len(labels))
    line = shuffled[np.argsort(strata.reshape(-1)[shuffled], kind="stable")]
    test = np.zeros(len(labels), dtype=np.bool_)
    validation = np.zeros(len(labels), dtype=np.bool_)
    picked = _evenly(len(line), data.test_fraction)
    test[line[picked]] = True
    rest = line[~picked]
    validation[rest[_evenly(len(rest), data.validation_fraction / (1 - data.test_fraction))]] = True
    return test, validation


def _evenly(length: int, fraction: float) -> NDArray[np.bool_]:
    """Return a mask of shape (length,) that is true `round(length * fraction)` times, evenly spread."""
    reached = np.rint(np.arange(length + 1) * fraction)
    return np.asarray(np.diff(reached) > 0)
