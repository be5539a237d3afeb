"""Published caches of made-up images, small enough to be made in every test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aegis_cache.store.build import BuildPlan, CacheBuild
from aegis_cache.store.cache import open_cache
from aegis_cache.store.manifest import GeneratorIdentity, Manifest, Purpose
from aegis_cache.store.provenance import Provenance
from client_app.masking.preparation import Masking
from client_app.masking.synthetic import SyntheticImages
from federation.config.masking_table import MaskingMode
from federation.preprocessing import PREPROCESSING

CLASS_NAMES = ("class-0", "class-1", "class-2")


def make_cache(
    folder: Path,
    *,
    images: int,
    hospital_id: str = "north",
    data_set: str = "scans",
    class_names: tuple[str, ...] = CLASS_NAMES,
    shape: tuple[int, int, int] = (1, 8, 8),
    provenance: Provenance | None = None,
    seed: int = 0,
    labels: ArrayLike | None = None,
    fill: ArrayLike | None = None,
) -> Manifest:
    """Publish a cache of `images` images in `folder`, in two files where it has two, and return its manifest.

    `labels` stand in for random ones, `fill` for random pixels: one value for all, or any array that can be broadcast
    to (images, C, H, W).
    """
    draw = np.random.default_rng(seed)
    noise = draw.integers(256, size=(images, *shape), dtype=np.uint8)
    pixels = noise if fill is None else np.broadcast_to(np.asarray(fill, dtype=np.uint8), noise.shape).copy()
    chosen = draw.integers(len(class_names), size=images) if labels is None else np.asarray(labels, dtype=np.int64)
    channels, height, width = shape
    purpose = Purpose(
        hospital_id=hospital_id,
        data_set=data_set,
        modality="chest-xray",
        class_names=class_names,
        channels=channels,
        height=height,
        width=width,
        preprocessing=PREPROCESSING,
    )
    origin = provenance or Provenance.public()
    generator = GeneratorIdentity(kind="gaussian", name="noise", digest="0" * 64, provenance=origin)
    half = -(-images // 2)
    with CacheBuild.begin(folder, BuildPlan(purpose=purpose, generator=generator, seed=seed), resume=False) as build:
        for batch, part in enumerate((slice(0, half), slice(half, images))):
            build.append(batch, batch, pixels[part], chosen[part], {})
        return build.publish(provenance=origin, acceptance={}, created="2026-01-01T00:00:00+00:00")


def make_masking(
    folder: Path,
    *,
    size: int,
    mode: MaskingMode = "interleaved",
    micro_batch: int = 1000,
    varied: bool = False,
    batch_statistics: str = "refuse",
    **cache: Any,
) -> Masking:
    """Return masking with all `size` images of a cache that is made in `folder` with the keywords of `make_cache`."""
    make_cache(folder, images=size, **cache)
    return Masking(
        mode=mode,
        synthetic=SyntheticImages(cache=open_cache(folder), chosen=np.arange(size), varied=varied),
        micro_batch=micro_batch,
        batch_statistics=batch_statistics,
    )
