"""Builds of made-up images, small enough to be repeated hundreds of times."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aegis_cache.store.build import BuildPlan, CacheBuild
from aegis_cache.store.cache import Cache
from aegis_cache.store.manifest import GeneratorIdentity, Manifest, Purpose
from aegis_cache.store.provenance import Provenance

PURPOSE = Purpose(
    hospital_id="north",
    data_set="scans",
    modality="chest-xray",
    class_names=("normal", "pneumonia", "other"),
    channels=1,
    height=4,
    width=5,
    preprocessing="fit-square-1",
)
GENERATOR = GeneratorIdentity(
    kind="gaussian", name="noise", digest="0" * 64, settings={"steps": 3}, provenance=Provenance.public()
)
COUNTS = (3, 0, 2, 4)


def plan_build(seed: int = 1, **changes: Any) -> BuildPlan:
    plan = BuildPlan(purpose=PURPOSE, generator=GENERATOR, seed=seed, settings={"filter": "none"})
    return plan.model_copy(update=changes)


def draw_batch(seed: int, batch: int, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    draw = np.random.default_rng([seed, batch])
    images = draw.integers(256, size=(count, *PURPOSE.shape), dtype=np.uint8)
    return images, draw.integers(len(PURPOSE.class_names), size=count)


def append_all(build: CacheBuild, seed: int = 1, counts: tuple[int, ...] = COUNTS) -> None:
    for batch in range(len(build.batches), len(counts)):
        build.append(batch, 100 + batch, *draw_batch(seed, batch, counts[batch]), {"candidates": 5})


def publish(build: CacheBuild) -> Manifest:
    return build.publish(provenance=Provenance.public(), acceptance={"rate": 0.5}, created="2026-01-01T00:00:00+00:00")


def make_cache(folder: Path, seed: int = 1, *, resume: bool = False, counts: tuple[int, ...] = COUNTS) -> Manifest:
    with CacheBuild.begin(folder, plan_build(seed), resume=resume) as build:
        append_all(build, seed, counts)
        return publish(build)


def everything(seed: int = 1, counts: tuple[int, ...] = COUNTS) -> tuple[bytes, list[int]]:
    """Return the images and labels that a cache of `make_cache` must hold."""
    batches = [draw_batch(seed, batch, count) for batch, count in enumerate(counts)]
    return b"".join(images.tobytes() for images, _ in batches), [int(x) for _, labels in batches for x in labels]


def content_of(cache: Cache) -> tuple[bytes, list[int]]:
    return cache.take(range(len(cache))).tobytes(), cache.labels.tolist()


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def modes_below(folder: Path) -> set[tuple[str, int]]:
    """Return kind and permissions of `folder` and everything below it."""
    paths = [folder, *folder.rglob("*")]
    return {("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode)) for path in paths}


def watch_disk(patch: Any, reach: Callable[[str], None]) -> None:
    """Call `reach` before everything by which a build changes the disk; nothing is forced to it, to save time."""
    for name in ("open", "replace", "rename", "unlink", "mkdir", "rmdir", "chmod"):
        real = getattr(os, name)

        def call(target: Any, *rest: Any, real: Any = real, name: str = name, **options: Any) -> Any:
            reach(f"{name} {Path(target).name}")
            return real(target, *rest, **options)

        patch.setattr(os, name, call)
    patch.setattr(os, "fsync", lambda descriptor: reach(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}"))
