"""How far a hospital has come in its cache, counted on its own volume: none is used twice before all were."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from federation.durable import write_durably
from federation.errors import CacheError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The count of one hospital.

    Not guaranteed: that an image is shown only once. A server that has updates trained and discards them moves the
    count on, at the cost of their training.

    Attributes:
        path: of the file that holds it.
    """

    path: Path

    @classmethod
    def of(cls, folder: Path, hospital_id: str) -> Rotation:
        """Return the count of `hospital_id`, whose state folder is `folder`."""
        return cls(path=folder / "masking" / f"{hospital_id}.rotation")

    def used(self, cache: str) -> int:
        """Return how many images of the cache with the digest `cache` were used so far, repetitions included.

        Raises:
            CacheError: the count cannot be read.
        """
        return self._read().get(cache, 0)

    def note(self, cache: str, used: int, *, since: int) -> None:
        """Write down durably that `used` images of `cache` were used; done before they are, so a crash repeats none.

        Args:
            cache: its digest.
            used: with the images that are now used.
            since: what `used` was when these were chosen.

        Raises:
            CacheError: the count cannot be read or written, or has moved since: another task has used these images.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._alone():
                counts = self._read()
                if (found := counts.get(cache, 0)) != since:
                    raise CacheError(
                        f"{self.path}: expected {since} used images, found {found}: another task uses the same ones at "
                        "the same time, so this one is not trained."
                    )
                write_durably(self.path, json.dumps({**counts, cache: used}).encode(), mode=0o600)
        except OSError as error:
            raise self._unusable(error) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold a lock on the folder of the counts."""
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _read(self) -> dict[str, int]:
        try:
            counts = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None
        if not isinstance(counts, dict) or any(type(count) is not int or count < 0 for count in counts.values()):
            raise self._unusable(ValueError(f"found {counts!r}"))
        return counts

    def _unusable(self, error: Exception) -> CacheError:
        return CacheError(
            f"{self.path}: expected counts of used images that can be read and written, found {error!r}: mend the "
            "volume, or delete the file to begin again."
        )
