"""The reading side: a published cache, checked as a whole before anything of it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aegis_cache.store.faults import REBUILD, explained
from aegis_cache.store.manifest import FORMAT, Manifest, Purpose
from aegis_cache.store.sealed_file import decode_sealed, parse_sealed
from aegis_cache.store.shard import ShardContent, open_shard
from federation.errors import CacheError

MANIFEST = "manifest.json"
_BUILD = "build one with `aegis cache build`"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Cache:
    """A cache that has passed all checks. It stays readable when another one is published in its place.

    Attributes:
        manifest: what the cache says of itself.
        labels: int64 class indices in the order of the images, shape (N,), read-only.
        shards: the content of the files, as read-only views: an image is loaded when it is taken.
    """

    manifest: Manifest
    labels: NDArray[np.int64]
    shards: tuple[ShardContent, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def digest(self) -> str:
        """Sha256 over the digests of all files, in order: of images and labels, not of what the manifest says."""
        return hashlib.sha256("".join(shard.sha256 for shard in self.manifest.shards).encode()).hexdigest()

    def take(self, indices: Sequence[int] | NDArray[np.integer]) -> NDArray[np.uint8]:
        """Return a copy of the images at `indices`, in that order: uint8, shape (len(indices), C, H, W).

        Args:
            indices: each from 0 to N - 1, in any order, repeated or not.

        Raises:
            IndexError: one is not.
        """
        wanted = np.asarray(indices, dtype=np.int64).reshape(-1)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"Expected indices from 0 to {len(self) - 1}, found {wanted.min()} to {wanted.max()}.")
        ends = np.cumsum([len(shard.labels) for shard in self.shards])
        homes = np.searchsorted(ends, wanted, side="right")
        images = np.empty((len(wanted), *self.manifest.purpose.shape), dtype=np.uint8)
        for home in np.unique(homes):
            here, content = homes == home, self.shards[home]
            images[here] = content.images[wanted[here] - (ends[home] - len(content.labels))]
        return images


def open_cache(folder: Path, *, expected: Purpose | None = None) -> Cache:
    """Return the cache published in `folder`, with every byte of it checked.

    Opening is verifying: there is no way to open a cache without all checks. Every shard takes one open file.

    Guarantee: manifest, images and labels are those of one publication: an altered, truncated or missing file is
        refused by name, and a cache that is replaced meanwhile is seen as the old one or the new one.
    Not guaranteed: that nobody forged the cache. Digests and the manifest's seal have no key: whoever may write all
        files of the folder can make another cache that opens. Nothing is looked at again after opening.

    Args:
        folder: where the cache was published.
        expected: what its images must be for; None takes any.

    Raises:
        CacheError: there is none, it is damaged, of another format, or for anything else than `expected`.
    """
    path = folder / MANIFEST
    while True:
        encoded = _read_manifest_file(path)
        manifest = decode_manifest(path, encoded)
        if expected is not None:
            _require_purpose(folder, manifest.purpose, expected)
        try:
            return _open(folder, manifest)
        except CacheError:
            if _read_manifest_file(path) == encoded:
                raise


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of the cache in `folder` without looking at its shards.

    Raises:
        CacheError: there is none, or it is damaged or of another format.
    """
    return decode_manifest(folder / MANIFEST, _read_manifest_file(folder / MANIFEST))


def decode_manifest(path: Path, encoded: bytes) -> Manifest:
    """Return the manifest in `encoded`, which was read from `path`.

    Raises:
        CacheError: it is damaged or of another format.
    """
    content = decode_sealed(path, encoded, remedy=REBUILD)
    if content.get("format") != FORMAT:
        raise CacheError(
            f"{path}: expected format {FORMAT!r}, found {content.get('format')!r}: use the version that wrote it, or "
            "build the cache again."
        )
    return parse_sealed(path, content, Manifest, remedy=REBUILD)


def _read_manifest_file(path: Path) -> bytes:
    with explained(path, remedy=_BUILD):
        return path.read_bytes()


def _require_purpose(folder: Path, found: Purpose, expected: Purpose) -> None:
    wanted, given = expected.model_dump(by_alias=True), found.model_dump(by_alias=True)
    different = [f"{key}={wanted[key]!r}, found {given[key]!r}" for key in wanted if wanted[key] != given[key]]
    if different:
        raise CacheError(
            f"{folder}: expected a cache with {'; '.join(different)}: name the folder of the right one, or {_BUILD}."
        )


def _open(folder: Path, manifest: Manifest) -> Cache:
    purpose = manifest.purpose
    shards = tuple(open_shard(folder, shard, purpose, remedy=REBUILD) for shard in manifest.shards)
    labels = np.concatenate([np.empty(0, dtype=np.int64), *(shard.labels for shard in shards)])
    labels.setflags(write=False)
    found = tuple(np.bincount(labels, minlength=len(purpose.class_names)).tolist())
    if found != manifest.label_histogram:
        raise CacheError(
            f"{folder / MANIFEST}: expected label-histogram={list(found)} as the labels have it, found "
            f"{list(manifest.label_histogram)}: {REBUILD}."
        )
    return Cache(manifest=manifest, labels=labels, shards=shards)
