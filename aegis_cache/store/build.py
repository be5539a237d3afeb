"""The writing side: batches are made durable one by one, and published together in one step.

Read next: `aegis_cache.store.cache`, which reads what is published, and `aegis_cache.store.build_folder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from aegis_cache.store.build_folder import BuildFolder, make_private_folder
from aegis_cache.store.build_plan import BuildPlan, compare_plans
from aegis_cache.store.cache import MANIFEST, decode_manifest
from aegis_cache.store.faults import FRESH, explained
from aegis_cache.store.manifest import Manifest, Shard
from aegis_cache.store.provenance import Provenance
from aegis_cache.store.sealed_file import decode_sealed, encode_sealed, parse_sealed, read_sealed, write_sealed
from aegis_cache.store.shard import ShardContent, open_shard, write_shard
from federation.config.table import Table
from federation.durable import sync_folder
from federation.errors import CacheError

__all__ = ["Batch", "BuildPlan", "CacheBuild"]

_PUBLISHED = "delete .building there; the new cache is published"


class Batch(Table):
    """A finished batch.

    Attributes:
        batch: its number, from 0.
        seed: of its random numbers.
        shard: its accepted images; None when it accepted none.
        notes: what else is to be known of it, as JSON gives it back.
    """

    batch: int = Field(ge=0)
    seed: int = Field(ge=0)
    shard: Shard | None
    notes: dict[str, Any]

    @property
    def count(self) -> int:
        """The number of accepted images."""
        return self.shard.images if self.shard else 0


class CacheBuild:
    """An unfinished cache, to be used as a context manager; leaving it keeps what was appended, for `--resume`.

    Guarantee: once `append` returns, its batch survives a crash of process or machine; at every moment the folder holds
        its whole old cache or its whole new one, wherever a build is killed.
    Not guaranteed: a disk that loses what it acknowledged, and a network file system without POSIX locks. Deleted
        images are gone from the folder, not from the blocks of the disk or from backups.
    """

    def __init__(self, place: BuildFolder, plan: BuildPlan, batches: list[Batch]) -> None:
        """Go on with `batches` in `place`; use `begin`."""
        self._place = place
        self._plan = plan
        self._batches = batches
        self._shards: list[ShardContent] = []
        self._open = True

    @classmethod
    def begin(cls, folder: Path, plan: BuildPlan, *, resume: bool) -> Self:
        """Return the build of `plan` in `folder`, which is made when it is missing, holding it until it is left.

        Args:
            folder: of the cache; one that is published there stays as it is until `publish`.
            plan: what is to be built.
            resume: whether an unfinished build is to be continued; without one, a new build begins.

        Raises:
            CacheError: another process builds there; there is an unfinished build of another plan, or it is not to be
                continued, or it is damaged; or the volume refused.
        """
        with explained(folder):
            make_private_folder(folder)
        place = BuildFolder(folder)
        with ExitStack() as undo, explained(folder):
            undo.callback(place.release)
            unfinished = place.plan.exists()
            build = cls(place, plan, _read_batches(place) if unfinished else [])
            if unfinished:
                build._require_same_plan(resume=resume)
                build._take_up()
            else:
                place.keep_only(())
                write_sealed(place.plan, encode_sealed(plan))
            undo.pop_all()
        return build

    @staticmethod
    def discard(folder: Path) -> None:
        """Delete the unfinished build in `folder`, if there is one; a published cache stays.

        Raises:
            CacheError: another process builds there, or the volume refused.
        """
        if not BuildFolder.exists_in(folder):
            return
        place = BuildFolder(folder)
        with ExitStack() as undo, explained(folder, remedy=FRESH):
            undo.callback(place.release)
            place.sweep_cache()
            place.remove()

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The finished batches, in order."""
        return tuple(self._batches)

    @property
    def accepted_histogram(self) -> NDArray[np.int64]:
        """Accepted images per class: int64, shape (number of classes,)."""
        classes = len(self._plan.purpose.class_names)
        found = np.zeros(classes, dtype=np.int64)
        for shard in self._shards:
            found += np.bincount(shard.labels, minlength=classes)
        return found

    def images(self) -> NDArray[np.uint8]:
        """Return a copy of all accepted images, in order: uint8, shape (N, C, H, W)."""
        empty = np.empty((0, *self._plan.purpose.shape), dtype=np.uint8)
        return np.concatenate([empty, *(shard.images for shard in self._shards)])

    def labels(self) -> NDArray[np.int64]:
        """Return a copy of the labels of all accepted images, in order: int64, shape (N,)."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(shard.labels for shard in self._shards)])

    def append(
        self, batch: int, seed: int, images: NDArray[np.uint8], labels: NDArray[np.int64], notes: Mapping[str, Any]
    ) -> None:
        """Make the accepted images of a batch durable; once this returns, the batch is finished.

        Args:
            batch: its number: 0, then 1, and so on.
            seed: of its random numbers.
            images: uint8, shape (n, C, H, W) as the purpose has it; n may be 0.
            labels: integer class indices, shape (n,).
            notes: what else is to be known of it: anything JSON can say.

        Raises:
            CacheError: something does not fit, or the volume refused; the batch is not finished then, and may be
                appended again.
        """
        self._require_open()
        self._require_fit(batch, images, labels)
        encode_sealed(Batch(batch=batch, seed=seed, shard=None, notes=dict(notes)))  # Refused before files are written.
        shard = write_shard(self._place.path, images, labels, batch=batch, seed=seed) if len(images) else None
        encoded = encode_sealed(Batch(batch=batch, seed=seed, shard=shard, notes=dict(notes)))
        content = self._find(shard) if shard else None
        path = self._place.batch(batch)
        write_sealed(path, encoded)
        self._batches.append(parse_sealed(path, decode_sealed(path, encoded), Batch))
        self._shards += [content] if content else []

    def publish(self, *, provenance: Provenance, acceptance: Mapping[str, Any], created: str) -> Manifest:
        """Put everything appended in place of the cache in the folder, in one step, and end the build.

        Args:
            provenance: of the cache.
            acceptance: statistics of acceptance, for its manifest.
            created: UTC time, ISO 8601.

        Returns:
            The manifest as readers find it.

        Raises:
            CacheError: no image was accepted, or the volume refused. The folder holds the old cache or the new one, and
                the build can be continued.
        """
        self._require_open()
        shards = tuple(batch.shard for batch in self._batches if batch.shard)
        if not shards:
            raise CacheError(f"{self._place.cache}: expected at least one accepted image to publish, found none.")
        made = Manifest(
            purpose=self._plan.purpose,
            generator=self._plan.generator,
            provenance=provenance,
            seed=self._plan.seed,
            settings=self._plan.settings,
            shards=shards,
            label_histogram=tuple(self.accepted_histogram.tolist()),
            acceptance=dict(acceptance),
            created=created,
        )
        path, encoded = self._place.cache / MANIFEST, encode_sealed(made)
        manifest = decode_manifest(path, encoded)
        with explained(self._place.cache):
            self._move({shard.name for shard in shards})
            write_sealed(path, encoded)
        with self, explained(self._place.cache, remedy=_PUBLISHED):
            self._place.sweep_cache()
            self._place.remove()
        return manifest

    def close(self) -> None:
        """Let go of the folder; what was appended stays. A second call does nothing."""
        self._open = False
        self._place.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _move(self, names: set[str]) -> None:
        """Move shards to where readers look for them; a build that was killed here has moved some already."""
        for name in sorted(names):
            source = self._place.path / name
            if source.exists():
                source.rename(self._place.cache / name)
        sync_folder(self._place.cache)
        sync_folder(self._place.path)

    def _find(self, shard: Shard) -> ShardContent:
        """Return the content of a recorded shard, which has been moved if the build was killed while it published."""
        moved = not (self._place.path / shard.name).exists() and (self._place.cache / shard.name).exists()
        folder = self._place.cache if moved else self._place.path
        return open_shard(folder, shard, self._plan.purpose, remedy=FRESH)

    def _take_up(self) -> None:
        for number, record in enumerate(self._batches):
            if record.batch != number:
                raise CacheError(f"{self._place.batch(number)}: expected it to be there, found nothing: {FRESH}.")
        shards = [batch.shard for batch in self._batches if batch.shard]
        self._shards = [self._find(shard) for shard in shards]
        records = {self._place.batch(number).name for number in range(len(self._batches))}
        self._place.keep_only({self._place.plan.name, *records, *(shard.name for shard in shards)})

    def _require_same_plan(self, *, resume: bool) -> None:
        path = self._place.plan
        found = parse_sealed(path, read_sealed(path, remedy=FRESH), BuildPlan, remedy=FRESH)
        images = sum(batch.count for batch in self._batches)
        if different := compare_plans(expected=self._plan, found=found):
            raise CacheError(
                f"{self._place.cache}: expected {'; '.join(different)} in the unfinished build of {images} "
                "images there: ask for the same again with --resume, or discard it with --fresh."
            )
        if not resume:
            raise CacheError(
                f"{self._place.cache}: expected no unfinished build, found one of {images} images: continue it with "
                "--resume, or discard it with --fresh."
            )

    def _require_fit(self, batch: int, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        purpose, following = self._plan.purpose, len(self._batches)
        if batch != following:
            raise CacheError(f"Expected batch={following}, the next one, found batch={batch}.")
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise CacheError(f"Expected integer labels of one dimension, found {labels.dtype} of {labels.ndim}.")
        if images.dtype != np.uint8 or images.shape != (len(labels), *purpose.shape):
            raise CacheError(
                f"Expected uint8 images of shape {(len(labels), *purpose.shape)}, found {images.dtype} of shape "
                f"{images.shape}."
            )
        if len(labels) and (labels.min() < 0 or labels.max() >= len(purpose.class_names)):
            raise CacheError(
                f"Expected labels from 0 to {len(purpose.class_names) - 1}, found {labels.min()} to {labels.max()}."
            )

    def _require_open(self) -> None:
        if not self._open:
            raise CacheError(f"{self._place.cache}: expected an open build, found it ended: begin it again.")


def _read_batches(place: BuildFolder) -> list[Batch]:
    return [parse_sealed(path, read_sealed(path, remedy=FRESH), Batch, remedy=FRESH) for path in place.find_batches()]
