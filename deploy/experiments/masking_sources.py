"""Where the synthetic images of the masking experiment come from, and the caches of all simulated hospitals.

Five generators of different quality; only the first two hand a hospital something of what other hospitals train on:

- `adapted`: learned from training images, of the whole data set (PneumoniaMNIST) or of a sixth of it (OrganAMNIST), for
  27 minutes: a good generator that a consortium has adapted to its data. The same training as in the experiment on the
  cache. Images are drawn once, into a pool by class, and every hospital draws from it.
- `thorough`: learned from all training images of OrganAMNIST for 10,000 steps, about an hour: 27 minutes are enough for
  PneumoniaMNIST, where a network that learns from generated images alone does as well as on real ones, and are not
  there (page on the cache). Steps rather than minutes, of which a busy machine makes half as many steps.
- `diffusion`: learned from the validation split, which nobody trains or is tested on, for nine minutes: a generator
  that was trained elsewhere, on less.
- `gaussian`: fitted by each hospital to its own training images alone.
- `real`: images of the validation split themselves: what a perfect generator would give, as far as they go.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aegis_cache.generation.diffusion.generator import load_generator, save_generator
from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan
from aegis_cache.generation.gaussian import GaussianGenerator
from aegis_cache.proportions import Labels, replace_evenly
from aegis_cache.store.build import BuildPlan, CacheBuild
from aegis_cache.store.manifest import GeneratorIdentity, Purpose
from aegis_cache.store.provenance import Provenance, Source
from deploy.cache.training import has_generator
from deploy.experiments.cache_generators import FULL_MINUTES, load_hospital
from deploy.experiments.cells import Cell, Result
from federation.config import DataConfig
from federation.datasets.image_set import Dataset, ImageSet
from federation.datasets.sites import load_own_folder, load_site
from federation.preprocessing import align
from federation.randomness import derive_seed, numpy_stream

SOURCES = ("adapted", "thorough", "diffusion", "gaussian", "real")
MINUTES = {"adapted": FULL_MINUTES, "diffusion": 9.0}
STEPS = {"organamnist": 10_000}
"""Of the `thorough` generators."""

PER_CLASS = {"pneumoniamnist": 2048, "organamnist": 700}
_POOLED = {*MINUTES, "thorough"}
_SHIFT_BELOW = 1000
_BATCH = 256
_RANK, _FEWEST = 16, 3
_LEARNED = Provenance(source=Source.PRIVATE_ADAPTED, uses=("a generator learned from images",))


def pool_cells(data_root: str) -> list[Cell]:
    """Return a cell per data set and trained generator that draws its pool."""
    wanted = [(name, source, {"minutes": minutes}) for name in PER_CLASS for source, minutes in MINUTES.items()]
    wanted += [(name, "thorough", {"steps": steps}) for name, steps in STEPS.items()]
    return [
        Cell(
            name=f"pool-{source}-{name}",
            compute=make_pool,
            settings={"data": name, "root": data_root, "source": source, **budget, "per-class": PER_CLASS[name]},
        )
        for name, source, budget in wanted
    ]


def make_pool(settings: dict[str, Any], folder: Path) -> Result:
    """Train a diffusion model with one thread and keep images of every class.

    Args:
        settings: `data`, `root`, `source`, `minutes` or `steps`, `per-class`.
        folder: where model and pool are kept; a training that was broken off goes on, and a model that is there, such
            as that of the experiment on the cache, is not trained again.
    """
    torch.set_num_threads(1)
    data = load_own_folder(DataConfig(name=settings["data"], root=settings["root"]), seed=0)
    images = {
        "adapted": lambda: load_hospital(settings["data"], settings["root"], 0)[0].train,
        "thorough": lambda: data.train,
        "diffusion": lambda: data.validation,
    }[settings["source"]]()
    kept = folder / "pools" / f"{settings['source']}-{settings['data']}"
    kept.mkdir(parents=True, exist_ok=True)
    if not has_generator(kept):
        budget = {key: settings[key] for key in ("minutes", "steps") if key in settings}
        plan = TrainingPlan(**budget, shift=len(images) < _SHIFT_BELOW)
        training = DiffusionTraining(images, data.info.classes, plan, checkpoint=kept / "training.pt")
        training.run()
        save_generator(training.average, kept, name=settings["data"], provenance=_LEARNED)
    generator = load_generator(kept)
    labels = np.repeat(np.arange(data.info.classes), settings["per-class"])
    random = torch.Generator().manual_seed(derive_seed(0, "pool"))
    drawn = [
        _aligned(generator.generate(torch.from_numpy(part), 1, random), data)
        for part in np.split(labels, range(_BATCH, len(labels), _BATCH))
    ]
    np.savez(kept / "images.npz", images=np.concatenate(drawn), labels=labels)
    return {"learned-from": len(images), "images": len(labels)}


def prepare_caches(settings: dict[str, Any], data: DataConfig, *, hospitals: int, seed: int, folder: Path) -> Path:
    """Return a folder with a cache for every simulated hospital, made now unless it is there.

    Args:
        settings: `source`, one of `SOURCES`; `size`, images per cache, fewer where "real" has no more; and `labels`,
            "as-train", as they are if nothing is said, "smoothed" or "balanced" over all classes of the data set, as
            `aegis cache build --labels` has them.
        data: how the data are divided.
        hospitals: how many.
        seed: that divides them.
        folder: of the experiment, with the pools.
    """
    source, size, labels = settings["source"], settings["size"], settings.get("labels", "as-train")
    marks = f"{data.partition}-{data.classes_per_hospital}-{data.dirichlet_alpha:g}"
    made = folder / "caches" / f"{data.name}-{marks}-{hospitals}-{seed}-{source}-{labels}-{size}"
    if made.is_dir():
        return made
    scratch = made.with_name(f"{made.name}.{os.getpid()}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    for site in range(hospitals):
        held = load_site(data, site=site, sites=hospitals, seed=seed)
        name = f"hospital-{site:03d}"
        images = draw(source, held, data, size, folder, site, labels=labels)
        publish(scratch / name, images, held, hospital_id=name, data_set=data.name)
    try:
        scratch.replace(made)
    except OSError:
        # Another process was faster with the same caches.
        shutil.rmtree(scratch)
    return made


def draw(
    source: str, held: Dataset, data: DataConfig, size: int, folder: Path, site: int, *, labels: Labels = "as-train"
) -> ImageSet:
    """Return `size` images from `source` for a hospital that holds `held`.

    Args:
        source: one of `SOURCES`.
        held: the hospital's images.
        data: how the data are divided.
        size: number of images.
        folder: of the experiment, with the pools.
        site: number of the hospital.
        labels: "as-train" for the proportions of its training images, "balanced" over all classes of the data set, or
            "smoothed" between; the last two take a source that knows all classes.
    """
    stream = numpy_stream(site, "cache", source)
    wanted = np.sort(replace_evenly(stream.choice(held.train.labels, size), labels, held.info.classes))
    if source == "gaussian":
        generator, asked = _fit_gaussian(held, wanted)
        random = torch.Generator().manual_seed(derive_seed(site, "gaussian"))
        return ImageSet(images=_aligned(generator.generate(torch.from_numpy(asked), 1, random), held), labels=wanted)
    stock = _pool(folder, f"{source}-{data.name}") if source in _POOLED else load_own_folder(data, seed=0).validation
    return stock.take(np.concatenate([_pick(stock, label, wanted, stream) for label in np.unique(wanted)]))


def _fit_gaussian(held: Dataset, wanted: NDArray[np.int64]) -> tuple[GaussianGenerator, NDArray[np.int64]]:
    """Return a generator fitted to the training images of `held`, and the classes to ask it for.

    A hospital with fewer than three images of a class fits one Gaussian to all of its images.
    """
    fewest = int(np.bincount(held.train.labels, minlength=held.info.classes).min())
    if fewest >= _FEWEST:
        rank = min(_RANK, fewest - 2)
        return GaussianGenerator.fit(held.train, held.info.class_names, rank=rank), wanted
    together = ImageSet(images=held.train.images, labels=np.zeros(len(held.train), dtype=np.int64))
    rank = min(_RANK, len(together) - 2)
    return GaussianGenerator.fit(together, ["any"], rank=rank), np.zeros_like(wanted)


def publish(
    folder: Path,
    images: ImageSet,
    held: Dataset,
    *,
    hospital_id: str,
    data_set: str,
    provenance: Provenance = _LEARNED,
) -> None:
    """Publish `images` as the cache of a hospital that holds `held`."""
    purpose = Purpose.of(held.info, hospital_id=hospital_id, data_set=data_set, modality="generic")
    identity = GeneratorIdentity(kind="folder", name="experiment", digest="0" * 64, provenance=provenance)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with CacheBuild.begin(folder, BuildPlan(purpose=purpose, generator=identity, seed=0), resume=False) as build:
        build.append(0, 0, images.images, images.labels, {})
        build.publish(provenance=provenance, acceptance={}, created="2026-01-01T00:00:00+00:00")


def _pick(stock: ImageSet, label: int, labels: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """Return places in `stock` of as many images of a class as are wanted, none twice until all were taken."""
    there, wanted = np.flatnonzero(stock.labels == label), int((labels == label).sum())
    rounds = -(-wanted // len(there))
    return np.concatenate([stream.permutation(there) for _ in range(rounds)])[:wanted]


def _pool(folder: Path, name: str) -> ImageSet:
    with np.load(folder / "pools" / name / "images.npz") as stored:
        return ImageSet(images=stored["images"], labels=stored["labels"])


def _aligned(images: torch.Tensor, data: Dataset) -> NDArray[np.uint8]:
    info = data.info
    return align(images, channels=info.channels, height=info.height, width=info.width).numpy()
