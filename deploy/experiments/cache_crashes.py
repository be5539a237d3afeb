"""Builds of a cache that are killed wherever they touch the disk and at random moments, and what they leave behind.

The builds are programs of their own (`deploy.experiments.cache_victim`); what they leave is looked at from here.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aegis_cache.store.build import CacheBuild
from aegis_cache.store.cache import open_cache
from deploy.experiments.cache_victim import LIVE, build, make_plan
from deploy.experiments.cells import Result
from federation.errors import CacheError

_OLD, _NEW = 1, 2
_AT_RANDOM = 0.3
_AGAIN = 0.3
_MOMENT = "random moment"


@dataclass(slots=True, kw_only=True)
class Toll:
    """What all kills together did.

    Attributes:
        kills: builds that died.
        points: how many of them at which kind of access to the disk, or at a random moment.
        while_resuming: of them, builds that had been killed before.
        lost_images: images said to be accepted, and neither in the unfinished build nor published.
        corrupt_caches: times the folder held anything else than the whole old or the whole new cache.
        differing: builds whose end was not that of an undisturbed one, in files, images, labels or permissions.
        faults: what they said who should have gone on and could not.
    """

    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)
    while_resuming: int = 0
    lost_images: int = 0
    corrupt_caches: int = 0
    differing: int = 0
    faults: list[str] = field(default_factory=list)

    def as_result(self) -> Result:
        """Return all counts as JSON has them."""
        names = ("kills", "while_resuming", "lost_images", "corrupt_caches", "differing", "faults")
        return {**{name: getattr(self, name) for name in names}, "points": dict(sorted(self.points.items()))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of one build.

    Attributes:
        killed: whether it was killed, rather than done.
        point: at which access to the disk, or "random moment".
        accepted: images it last said to be durable.
        accesses: how many there were to the disk, for one that was done.
        lasted_s: seconds from its first line to its end.
    """

    killed: bool
    point: str
    accepted: int
    accesses: int
    lasted_s: float


class Matrix:
    """Kills builds below one folder, each on top of the same old cache, and lets others finish them."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        """Make the old cache and an undisturbed new one in `folder`, which should be empty.

        Args:
            folder: for the caches.
            seed: decides moments and repetitions.
        """
        self.toll = Toll()
        self._folder = folder
        self._draw = np.random.default_rng(seed)
        self._old, undisturbed = folder / "old", folder / "undisturbed"
        build(self._old, _OLD, lambda _: None)
        shutil.copytree(self._old, undisturbed)
        self._unbroken = run_victim(undisturbed, LIVE)
        self._contents = {fingerprint(self._old): "old", fingerprint(undisturbed): "new"}
        self._files = list_files(undisturbed)

    def run(self, kills: int) -> Toll:
        """Kill a build at every access to the disk once, if `kills` allows, then anywhere until so many died."""
        everywhere = self._draw.permutation(self._unbroken.accesses).tolist()
        while self.toll.kills < kills and not self.toll.faults:
            at_random = self._draw.random() < _AT_RANDOM or not everywhere
            self._strike(None if at_random else everywhere.pop())
        return self.toll

    def _strike(self, access: int | None) -> None:
        """Kill a build before `access`, or at a random moment; maybe kill those who go on; look, and let one finish."""
        folder = self._folder / "struck"
        shutil.copytree(self._old, folder)
        again = False
        while True:
            after_s = None if access is not None else float(self._draw.uniform(0, self._unbroken.lasted_s))
            death = run_victim(folder, LIVE if access is None else access, after_s)
            if not death.killed:
                break
            self.toll.kills += 1
            self.toll.points[death.point] += 1
            self.toll.while_resuming += again
            self.examine(folder, death)
            again = True
            if self._draw.random() >= _AGAIN:
                break
            access = int(self._draw.integers(self._unbroken.accesses)) if self._draw.random() >= _AT_RANDOM else None
        self.finish(folder, death)
        shutil.rmtree(folder)

    def examine(self, folder: Path, death: Death) -> None:
        """Look at what a killed build has left: a whole cache, and all images it said to be durable."""
        published = self._contents.get(fingerprint(folder), "neither")
        self.toll.corrupt_caches += published == "neither"
        try:
            kept = count_kept(folder)
        except CacheError as error:
            kept = 0
            self.toll.faults.append(f"{death.point}: {error}")
        self.toll.lost_images += 0 if published == "new" else max(0, death.accepted - kept)

    def finish(self, folder: Path, death: Death) -> None:
        """Let a last build go on to its end, and compare that with an undisturbed one's, byte for byte."""
        try:
            build(folder, _NEW, lambda _: None)
        except CacheError as error:
            self.toll.faults.append(f"{death.point}: {error}")
        same = self._contents.get(fingerprint(folder)) == "new" and list_files(folder) == self._files
        self.toll.differing += not same


def run_victim(folder: Path, kill: int, after_s: float | None = None) -> Death:
    """Run a build in `folder` as a program, and return how it ended.

    Args:
        folder: of the cache.
        kill: before which access to the disk it dies; `LIVE` for none.
        after_s: how long after it begins it is killed from outside, in seconds; None for never.

    Raises:
        CalledProcessError: it ended with an error.
    """
    command = [sys.executable, "-m", "deploy.experiments.cache_victim", str(folder), str(_NEW), str(kill)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        lines = [victim.stdout.readline()] if victim.stdout else []
        began = time.monotonic()
        timer = threading.Timer(after_s or 0.0, victim.kill)
        if after_s is not None:
            timer.start()
        lines += victim.stdout.readlines() if victim.stdout else []
        victim.wait()
        timer.cancel()
        lasted_s = time.monotonic() - began
    if victim.returncode > 0:
        raise subprocess.CalledProcessError(victim.returncode, command)
    return _read_death(lines, killed=victim.returncode < 0, lasted_s=lasted_s)


def _read_death(lines: Sequence[str], *, killed: bool, lasted_s: float) -> Death:
    words = [line.rstrip("\n").partition(" ") for line in lines if line.endswith("\n")]
    last = {kind: rest for kind, _, rest in words}
    return Death(
        killed=killed,
        point=last.get("reached", _MOMENT),
        accepted=int(last.get("accepted", 0)),
        accesses=int(last.get("accesses", 0)),
        lasted_s=lasted_s,
    )


def fingerprint(folder: Path) -> str:
    """Return a digest of the images and labels that are published in `folder`, or why they cannot be read."""
    try:
        cache = open_cache(folder)
    except CacheError as error:
        return str(error)
    found = hashlib.sha256(cache.take(range(len(cache))).tobytes())
    found.update(cache.labels.tobytes())
    return found.hexdigest()


def list_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Return permissions and digest of everything below `folder` by its path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[path.relative_to(folder).as_posix()] = path.stat().st_mode & 0o777, digest
    return found


def count_kept(folder: Path) -> int:
    """Return how many images a resumed build in `folder` finds, looking at a copy so that nothing changes.

    Raises:
        CacheError: the build cannot be resumed.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        copy = shutil.copytree(folder, Path(place) / "copy")
        with CacheBuild.begin(copy, make_plan(_NEW), resume=True) as going:
            return sum(batch.count for batch in going.batches)


def measure_cache_crashes(settings: dict[str, Any], folder: Path) -> Result:
    """Return the toll of a matrix of killed builds on the volume of `folder`.

    Args:
        settings: `kills`, at least so many; `seed`.
        folder: where caches may live for a while.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="cache-") as place:
        return Matrix(Path(place), seed=settings["seed"]).run(settings["kills"]).as_result()


if __name__ == "__main__":
    asked = {"kills": int(sys.argv[2]), "seed": int(sys.argv[3])}
    sys.stdout.write(json.dumps(measure_cache_crashes(asked, Path(sys.argv[1]))))
