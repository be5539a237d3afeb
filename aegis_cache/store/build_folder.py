"""The folder of an unfinished build inside the cache's own: held by one process at a time, removed as a whole."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Collection
from pathlib import Path

from aegis_cache.store.cache import MANIFEST, read_manifest
from aegis_cache.store.faults import explained
from federation.durable import sync_folder
from federation.errors import CacheError

_NAME = ".building"
_LOCK = "lock"
_REMOVABLE = re.compile(r"shard-[0-9a-f]{16}\.bin|\.write-[0-9a-f]{16}\.tmp")


class BuildFolder:
    """`.building` in a cache's folder, under an exclusive `flock` that ends with its holder, however that ends."""

    def __init__(self, cache: Path) -> None:
        """Make the folder with mode 0700 in `cache`, which exists, and hold it.

        Raises:
            CacheError: another process holds it, or the volume refused.
        """
        self.cache = cache
        self.path = cache / _NAME
        with explained(self.path):
            self._descriptor = _lock(self.path)

    @staticmethod
    def exists_in(cache: Path) -> bool:
        """Return whether there is such a folder in `cache`, held or not."""
        return (cache / _NAME).is_dir()

    @property
    def plan(self) -> Path:
        """The file that says what is being built; without it, there is no unfinished build."""
        return self.path / "plan.json"

    def batch(self, number: int) -> Path:
        """Return the path of the record of batch `number`."""
        return self.path / f"batch-{number:06d}.json"

    def find_batches(self) -> list[Path]:
        """Return the records that are there, in order."""
        return sorted(self.path.glob("batch-*.json"))

    def keep_only(self, names: Collection[str]) -> None:
        """Delete every file but those with these `names`."""
        for path in sorted(self.path.iterdir()):
            if path.name not in names and path.name != _LOCK:
                path.unlink()

    def sweep_cache(self) -> None:
        """Delete shards that the published cache does not name, and what a killed writer left beside them.

        Nothing is deleted beside a manifest that cannot be read: its shards may be wanted for a repair.
        """
        try:
            named = {shard.name for shard in read_manifest(self.cache).shards} if self._is_published() else set()
        except CacheError:
            return
        for path in sorted(self.cache.iterdir()):
            if _REMOVABLE.fullmatch(path.name) and path.name not in named:
                path.unlink()

    def remove(self) -> None:
        """Delete the folder, first of all the plan, and let go of it."""
        self.plan.unlink(missing_ok=True)
        sync_folder(self.path)
        self.keep_only(())
        (self.path / _LOCK).unlink(missing_ok=True)
        try:
            self.path.rmdir()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # Then the next process has made its lock there.
                raise
        sync_folder(self.cache)
        self.release()

    def release(self) -> None:
        """Let the next process in; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_published(self) -> bool:
        return (self.cache / MANIFEST).exists()


def make_private_folder(folder: Path) -> None:
    """Make `folder` and what lies above it, durably, and take it from everyone but its owner.

    Raises:
        CacheError: others may use it and it holds other things than a cache, so it is not only ours to take.
        OSError: the volume refused.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)
    mode = folder.stat().st_mode & 0o777
    if mode & 0o077:
        other = [path.name for path in sorted(folder.iterdir()) if not _is_ours(path.name)]
        if other:
            raise CacheError(
                f"{folder}: expected nobody else to have access, found mode {mode:04o} and {other[0]!r} in it: run "
                "chmod 700 on it, or name a folder for the cache alone."
            )
        folder.chmod(0o700)


def _is_ours(name: str) -> bool:
    return name in (MANIFEST, _NAME) or _REMOVABLE.fullmatch(name) is not None


def _lock(folder: Path) -> int:
    """Return the descriptor of the locked file in `folder`, which both are made when they are missing."""
    path = folder / _LOCK
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # The last holder has just removed the folder.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise CacheError(
                f"{folder.parent}: expected to be the only build there, found another one at work: wait for its end."
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # The last holder has removed this file after it was opened here.
