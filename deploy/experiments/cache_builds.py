"""How long a cache takes from a trained generator, everything included."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from aegis_cache.generation.diffusion.generator import load_generator
from aegis_cache.store.cache import open_cache
from deploy.cache.construction import make_builder
from deploy.cache.permitted import PermittedImages
from deploy.cache.request import BuildRequest
from deploy.experiments.cache_generators import FULL_MINUTES, HOSPITALS, generator_cell_name, load_hospital
from deploy.experiments.cells import Cell, Result

IMAGES = 2048
BRIGHTNESS = ("as-generated", "aim")


def build_cells(data_root: str) -> list[Cell]:
    """Return a cell per data set and way of treating brightness; each needs the trained generator of its data set."""
    return [
        Cell(
            name=build_cell_name(name, brightness),
            compute=measure_build,
            settings={"data": name, "root": data_root, "images": IMAGES, "brightness": brightness},
            alone=True,
        )
        for name in HOSPITALS
        for brightness in BRIGHTNESS
    ]


def build_cell_name(name: str, brightness: str) -> str:
    """Return the name of a cell of `build_cells`."""
    return f"build-{name}-{brightness}"


def measure_build(settings: dict[str, Any], folder: Path) -> Result:
    """Build a cache with all cores and return how long it took and what was accepted.

    Timed is what `aegis cache build` does with a trained generator: features, calibration, generation, acceptance,
    coverage, publication. Coverage is reported, never refused.

    Args:
        settings: `data`, `root`, `images`, `brightness`.
        folder: with the trained generator; the cache is made there and removed.
    """
    torch.set_num_threads(os.cpu_count() or 1)
    data, _ = load_hospital(settings["data"], settings["root"], 0)
    permitted = PermittedImages(
        hospital_id="hospital-000",
        data_set=settings["data"],
        info=data.info,
        train=data.train,
        held_out=data.validation,
        may_train=True,
    )
    place = folder / "caches" / settings["data"]
    shutil.rmtree(place, ignore_errors=True)
    request = BuildRequest(
        images=settings["images"], brightness=settings["brightness"], largest_ks=1.0, least_overlap=0.0
    )
    started = time.perf_counter()
    generator = load_generator(folder / "models" / generator_cell_name(settings["data"], 0, FULL_MINUTES))
    manifest = make_builder(generator, permitted, request).run(place)
    minutes = (time.perf_counter() - started) / 60
    opened = open_cache(place)
    size = sum(path.stat().st_size for path in place.glob("shard-*"))
    shutil.rmtree(place)
    return {
        "minutes": minutes,
        "images": len(opened),
        "bytes": size,
        "threads": torch.get_num_threads(),
        "acceptance": manifest.acceptance,
    }
