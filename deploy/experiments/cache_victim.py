"""A build of made-up images that kills itself with SIGKILL at one of its accesses to the disk, or is killed.

Run as a program: `python -m deploy.experiments.cache_victim FOLDER SEED KILL`. It publishes an own cache in FOLDER over
whatever is there, and dies before access number KILL to the disk; with -1 it lives. It says `begin` when the build
begins, `accepted N` once N images are durable, and `reached POINT` where it dies; one that lives says at the end how
many accesses there were. The product holds no hooks for this: its calls to the operating system are watched. Read next:
`deploy.experiments.cache_crashes`, which starts it again and again.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aegis_cache.store.build import BuildPlan, CacheBuild
from aegis_cache.store.manifest import GeneratorIdentity, Manifest, Purpose
from aegis_cache.store.provenance import Provenance

PURPOSE = Purpose(
    hospital_id="north",
    data_set="scans",
    modality="made-up",
    class_names=("a", "b", "c"),
    channels=1,
    height=16,
    width=16,
    preprocessing="none",
)
# Images per batch: two batches reject everything, and the first is the same under every seed, in the old cache too.
COUNTS = (8, 0, 24, 5, 0, 16)
LIVE = -1
_CREATED = "2026-01-01T00:00:00+00:00"
_CALLS = ("open", "replace", "rename", "unlink", "mkdir", "rmdir", "chmod")

Reach = Callable[[str], None]


def draw_batch(seed: int, batch: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images, uint8 of shape (n, C, H, W), and labels, int64 of shape (n,), of a batch: a hash of both."""
    count = COUNTS[batch]
    stream = hashlib.shake_256(f"{seed if batch else 'any'}-{batch}".encode())
    content = np.frombuffer(stream.digest(count * (1 + math.prod(PURPOSE.shape))), dtype=np.uint8)
    labels = content[:count].astype(np.int64) % len(PURPOSE.class_names)
    return content[count:].reshape(count, *PURPOSE.shape), labels


def make_plan(seed: int) -> BuildPlan:
    """Return the plan of the build with this seed."""
    generator = GeneratorIdentity(kind="folder", name="hash", digest="0" * 64, provenance=Provenance.public())
    return BuildPlan(purpose=PURPOSE, generator=generator, seed=seed, settings={"batches": len(COUNTS)})


def build(folder: Path, seed: int, tell: Callable[[str], None]) -> Manifest:
    """Build and publish the cache of `seed` in `folder`, going on with what is there.

    Args:
        folder: of the cache.
        seed: decides the images.
        tell: told how many images are durable after every batch, those of earlier builds included.

    Raises:
        CacheError: the unfinished build cannot be continued, or the volume refused.
    """
    with CacheBuild.begin(folder, make_plan(seed), resume=True) as going:
        for batch in range(len(going.batches), len(COUNTS)):
            going.append(batch, batch, *draw_batch(seed, batch), {"candidates": COUNTS[batch]})
            tell(f"accepted {sum(finished.count for finished in going.batches)}")
        return going.publish(provenance=Provenance.public(), acceptance={}, created=_CREATED)


def watch_disk(reach: Reach) -> None:
    """Name every call of this process by which a build changes the disk, before it is made; tear what is written."""
    fsync, flock = os.fsync, fcntl.flock

    def tear(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}")
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            content = path.read_bytes()
            os.truncate(path, len(content) // 2)
            reach(f"torn {_label(path.readlink())}")
            path.write_bytes(content)
        reach(f"fsync {_label(path.readlink())}")
        fsync(descriptor)

    def lock(descriptor: int, how: int) -> None:
        reach("flock lock")
        flock(descriptor, how)

    for name in _CALLS:
        setattr(os, name, _watched(getattr(os, name), name, reach))
    setattr(os, "fsync", tear)  # noqa: B010 - mypy lets nobody assign to a function of a module.
    setattr(fcntl, "flock", lock)  # noqa: B010


def _watched(real: Callable[..., Any], name: str, reach: Reach) -> Callable[..., Any]:
    def call(target: str | Path, *rest: Any, **options: Any) -> Any:
        subject = rest[0] if name in ("replace", "rename") else target
        reach(f"{name} {_label(Path(subject))}")
        return real(target, *rest, **options)

    return call


def _label(path: Path) -> str:
    """Return what kind of file `path` is."""
    if path.name.startswith(".write-"):
        return "temporary"
    kind = path.name.partition("-")[0].partition(".")[0]
    where = " unfinished" if path.parent.name == ".building" and kind == "shard" else ""
    return (kind if kind in ("shard", "batch", "plan", "manifest", "lock") else "folder") + where


def _live(folder: Path, seed: int, kill: int) -> None:
    """Be a build that dies before access number `kill`."""
    passed: list[str] = []

    def tell(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def reach(point: str) -> None:
        if len(passed) == kill:
            tell(f"reached {point}")
            os.kill(os.getpid(), signal.SIGKILL)
        passed.append(point)

    watch_disk(reach)
    tell("begin")
    build(folder, seed, tell)
    tell(f"accesses {len(passed)}")


if __name__ == "__main__":
    _live(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
