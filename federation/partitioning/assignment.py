"""From a method's shares to the images of every hospital, with the checks that hold for every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from federation.config.tables import DataConfig
from federation.datasets.image_set import Dataset, ImageSet, Task
from federation.errors import PartitionError
from federation.partitioning.classes import share_by_classes
from federation.partitioning.dirichlet import share_by_dirichlet
from federation.partitioning.iid import share_equally
from federation.partitioning.minimum import raise_to_minimum
from federation.partitioning.quantity import share_by_rank
from federation.partitioning.shares import Shares, apportion, deal
from federation.randomness import numpy_stream

_BY_LABEL = ("dirichlet", "classes")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteIndices:
    """Which images of each split one hospital holds, in ascending order.

    Attributes:
        train: int64, shape (n,).
        validation: int64, shape (n,).
        test: int64, shape (n,).
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    def take(self, dataset: Dataset) -> Dataset:
        """Return the hospital's part of `dataset`, in arrays of its own."""
        return Dataset(
            info=dataset.info,
            train=dataset.train.take(self.train),
            validation=dataset.validation.take(self.validation),
            test=dataset.test.take(self.test),
        )


def partition(dataset: Dataset, data: DataConfig, *, sites: int, seed: int) -> list[Dataset]:
    """Return every hospital's part of `dataset`; see `assign`, which copies no image, for arguments and errors."""
    return [indices.take(dataset) for indices in assign(dataset, data, sites=sites, seed=seed)]


def assign(dataset: Dataset, data: DataConfig, *, sites: int, seed: int) -> tuple[SiteIndices, ...]:
    """Return which images each hospital holds: every image at exactly one hospital.

    Guarantee: each hospital has at least `data.min_examples` images in each split and, under `classes`, images of at
    most `data.classes_per_hospital` classes over all its splits. The same arguments give the same division.

    Args:
        dataset: what to divide; the three splits are divided by the same shares and never mixed.
        data: the method and its parameters.
        sites: number of hospitals.
        seed: the simulation's seed.

    Raises:
        PartitionError: the request cannot be met; the numbers and the remedy are named.
    """
    if sites < 1:
        raise PartitionError(f"Expected sites={sites} >= 1: simulate at least one hospital.")
    check_split_sizes(dataset, sites=sites, minimum=data.min_examples)
    strata = {name: _stratify(split, dataset, data) for name, split in _splits(dataset).items()}
    width = dataset.info.classes if data.partition in _BY_LABEL else 1
    sizes = {name: np.bincount(values, minlength=width) for name, values in strata.items()}
    shares = _draw_shares(np.stack([*sizes.values()]), data, sites, numpy_stream(seed, "partition", data.partition))
    dealt = {
        name: deal(
            strata[name],
            _count(sizes[name], shares, data, name),
            numpy_stream(seed, "partition", data.partition, name),
        )
        for name in strata
    }
    return tuple(SiteIndices(**{name: dealt[name][site] for name in dealt}) for site in range(sites))


def check_split_sizes(dataset: Dataset, *, sites: int, minimum: int) -> None:
    """Check that every split of `dataset` has `minimum` images for each of `sites` hospitals.

    Raises:
        PartitionError: a split is too small; the largest possible number of hospitals is named.
    """
    for name, split in _splits(dataset).items():
        if len(split) < minimum * sites:
            fewer = f"simulate at most {len(split) // minimum} hospitals, " if len(split) >= minimum else ""
            raise PartitionError(
                f"Expected at least {minimum} x {sites} = {minimum * sites} {name} images for {sites} hospital(s), "
                f"found {len(split)}: {fewer}lower data.min-examples or add images."
            )


def _splits(dataset: Dataset) -> dict[str, ImageSet]:
    return {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}


def _stratify(split: ImageSet, dataset: Dataset, data: DataConfig) -> NDArray[np.int64]:
    """Return the stratum of each image, shape (N,)."""
    if data.partition not in _BY_LABEL:
        return np.zeros(len(split), dtype=np.int64)
    if dataset.info.task is Task.MULTILABEL:
        raise PartitionError(
            f"Expected one class per image for data.partition={data.partition!r}, found the multi-label data set "
            f"{dataset.info.name!r}, whose images have any number of labels: use 'iid' or 'quantity'."
        )
    return split.labels


def _draw_shares(sizes: NDArray[np.int64], data: DataConfig, sites: int, stream: np.random.Generator) -> Shares:
    match data.partition:
        case "iid":
            return share_equally(sites)
        case "quantity":
            return share_by_rank(sites, data.quantity_exponent)
        case "dirichlet":
            return share_by_dirichlet(sizes.shape[1], sites, data.dirichlet_alpha, stream)
        case "classes":
            return share_by_classes(sizes, sites, data.classes_per_hospital, data.min_examples, stream)
        case "by-file":
            raise PartitionError(
                "Expected a method that divides one data set, found data.partition='by-file', under which the files "
                "decide: load each hospital's entry of data.root instead."
            )
        case _:
            assert_never(data.partition)


def _count(sizes: NDArray[np.int64], shares: Shares, data: DataConfig, name: str) -> NDArray[np.int64]:
    counts = raise_to_minimum(apportion(sizes, shares), shares.allowed, data.min_examples)
    if counts is None:
        raise PartitionError(
            f"Expected each of {len(shares.values)} hospitals to get {data.min_examples} {name} image(s) of its own "
            f"classes, found too few in {sizes.tolist()} images per class: simulate fewer hospitals, raise "
            "data.classes-per-hospital or lower data.min-examples."
        )
    return counts
