"""Pathological label skew: every hospital holds images of a few classes only.

McMahan et al., arXiv 1602.05629, section 3, cut data sorted by label into equal shards and give each hospital the same
number of them.

Deviation: a class is cut into shards of its own, so that no shard holds two classes; the shards of a class go to
different hospitals; the number of shards follows the split in which the class is scarcest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from federation.errors import PartitionError
from federation.partitioning.shares import Shares


def share_by_classes(
    sizes: NDArray[np.int64], sites: int, per_site: int, minimum: int, stream: np.random.Generator
) -> Shares:
    """Return equal shares of each class among its holders, shape (sites, classes): at most `per_site` per hospital.

    Args:
        sizes: images of each class in train, validation and test, shape (3, classes).
        sites: number of hospitals.
        per_site: most classes of one hospital.
        minimum: fewest images of a hospital per split.
        stream: where the draws come from.

    Raises:
        PartitionError: the hospitals together cannot hold every class, or there are too few images of a class.
    """
    present = int(np.count_nonzero(sizes.sum(axis=0)))
    if sites * per_site < present:
        raise PartitionError(
            f"Expected sites={sites} x classes-per-hospital={per_site} = {sites * per_site} >= {present} classes, so "
            "that every class has a hospital: simulate more hospitals or raise data.classes-per-hospital."
        )
    holders = _count_holders(sizes, sites, min(per_site, present), minimum)
    holds = _place_holders(holders, sites, min(per_site, present), stream)
    return Shares(values=holds / np.maximum(holders, 1), exclusive=True)


def _count_holders(sizes: NDArray[np.int64], sites: int, per_site: int, minimum: int) -> NDArray[np.int64]:
    """Return the number of hospitals that hold each class, shape (classes,), as proportional as D'Hondt's method is."""
    present = sizes.sum(axis=0) > 0
    most = np.where(present, sites, 0)
    if per_site == 1:
        most = np.minimum(most, sizes.min(axis=0) // minimum)
    if (most < present).any() or most.sum() < sites * per_site:
        raise PartitionError(
            f"Expected {minimum} or more images of one class per hospital and split with classes-per-hospital="
            f"{per_site}, found images for at most {most.tolist()} hospitals per class, of {sites}: simulate fewer "
            "hospitals, raise data.classes-per-hospital or lower data.min-examples."
        )
    scarcity = (sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1)).min(axis=0)
    holders: NDArray[np.int64] = present.astype(np.int64)
    for _ in range(sites * per_site - int(holders.sum())):
        quotients = np.where(holders < most, scarcity / (holders + 1), -1.0)
        holders[quotients.argmax()] += 1
    return holders


def _place_holders(
    holders: NDArray[np.int64], sites: int, per_site: int, stream: np.random.Generator
) -> NDArray[np.bool_]:
    """Return who holds which class, shape (sites, classes), with `per_site` classes at every hospital.

    Each class goes to the hospitals with the most room left, ties drawn at random, which never runs into a dead end
    (Gale 1957, Ryser 1957).
    """
    holds = np.zeros((sites, len(holders)), dtype=np.bool_)
    for label in stream.permutation(len(holders)):
        room = per_site - holds.sum(axis=1)
        roomiest = np.lexsort((stream.random(sites), -room))
        holds[roomiest[: holders[label]], label] = True
    return holds
