"""A shard: one file with the images of one batch and their labels, named by its digest and read where it lies.

First the labels, int64 little endian, then the images, uint8, both in C order and without anything in between.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aegis_cache.store.faults import explained
from aegis_cache.store.manifest import Purpose, Shard
from federation.durable import write_durably
from federation.errors import CacheError

_LABEL = np.dtype("<i8")
_DIGITS_IN_NAME = 16


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ShardContent:
    """What is in a shard, as read-only views of the file.

    Attributes:
        images: uint8, shape (n, C, H, W).
        labels: int64, shape (n,).
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def name_shard(sha256: str) -> str:
    """Return the file name of a shard with this digest."""
    return f"shard-{sha256[:_DIGITS_IN_NAME]}.bin"


def write_shard(folder: Path, images: NDArray[np.uint8], labels: NDArray[np.int64], *, batch: int, seed: int) -> Shard:
    """Write a shard into `folder`, durably and with mode 0600, and return its entry for the manifest.

    Args:
        folder: must exist.
        images: uint8, shape (n, C, H, W), n at least 1.
        labels: int64, shape (n,).
        batch: which batch of the build made them.
        seed: of that batch.

    Raises:
        CacheError: the volume refused; nothing is left then.
    """
    pieces = [_as_bytes(labels.astype(_LABEL)), _as_bytes(images)]
    found = hashlib.sha256(pieces[0])
    found.update(pieces[1])
    sha256 = found.hexdigest()
    path = folder / name_shard(sha256)
    with explained(path, size_bytes=sum(len(piece) for piece in pieces)):
        write_durably(path, pieces, mode=0o600)
    return Shard(name=path.name, images=len(images), sha256=sha256, batch=batch, seed=seed)


def open_shard(folder: Path, shard: Shard, purpose: Purpose, *, remedy: str) -> ShardContent:
    """Return the content of `shard`, which lies in `folder`, after comparing its name, size and digest.

    The views keep the file open: it can be read on when its name is deleted.

    Args:
        folder: that holds the file.
        shard: what the file must be.
        purpose: whose shape the images have, and whose classes the labels stand for.
        remedy: what to do when it is not.

    Raises:
        CacheError: it is missing, or anything about it is different.
    """
    path = folder / shard.name
    if shard.name != name_shard(shard.sha256):
        raise CacheError(f"{path}: expected the name {name_shard(shard.sha256)} of its digest: {remedy}.")
    size_bytes = shard.images * (_LABEL.itemsize + math.prod(purpose.shape))
    with explained(path, remedy=remedy), path.open("rb") as file:
        found_bytes = path.stat().st_size
        if found_bytes != size_bytes:
            raise CacheError(f"{path}: expected {size_bytes} bytes, found {found_bytes}: {remedy}.")
        content = np.asarray(np.memmap(file, dtype=np.uint8, mode="r"))
    sha256 = hashlib.sha256(content.data).hexdigest()
    if sha256 != shard.sha256:
        raise CacheError(f"{path}: expected sha256 {shard.sha256}, found {sha256}, so it was altered: {remedy}.")
    border = shard.images * _LABEL.itemsize
    labels = content[:border].view(_LABEL)
    if labels.min() < 0 or labels.max() >= len(purpose.class_names):
        raise CacheError(
            f"{path}: expected labels from 0 to {len(purpose.class_names) - 1}, found {labels.min()} to "
            f"{labels.max()}: {remedy}."
        )
    return ShardContent(images=content[border:].reshape(shard.images, *purpose.shape), labels=labels)


def _as_bytes(array: NDArray[np.generic]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
