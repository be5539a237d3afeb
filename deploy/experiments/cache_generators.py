"""The generators that a hospital can make of its own images, and what their images are worth."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aegis_cache.generation.diffusion.generator import DiffusionGenerator, load_generator, save_generator
from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan
from aegis_cache.generation.gaussian import GaussianGenerator
from aegis_cache.generation.generator import Generator
from aegis_cache.store.provenance import Provenance, Source
from deploy.experiments.cache_quality import measure_quality
from deploy.experiments.cells import Cell, Result
from federation.config import DataConfig
from federation.datasets.image_set import Dataset, ImageSet
from federation.datasets.sites import load_own_folder, load_site
from federation.preprocessing import align
from federation.randomness import derive_seed, numpy_stream

SEEDS = (0, 1, 2)
SAMPLES = 4096
FULL_MINUTES = 27.0
MINUTES = (3.0, 9.0, FULL_MINUTES)
FEW_IMAGES = 300
HOSPITALS = {"pneumoniamnist": 1, "organamnist": 6}
"""Into how many equal hospitals a data set is divided; the first of them is measured (4,708 and about 5,760 images)."""

_LEARNED = Provenance(source=Source.PRIVATE_ADAPTED, uses=("a generator learned from the training images",))


def generator_cells(data_root: str) -> list[Cell]:
    """Return a cell per data set, number of images and minutes of training."""
    wanted = [(name, 0, minutes) for minutes in reversed(MINUTES) for name in HOSPITALS]
    wanted += [("pneumoniamnist", FEW_IMAGES, minutes) for minutes in MINUTES[:2]]
    return [
        Cell(
            name=generator_cell_name(name, images, minutes),
            compute=measure_diffusion,
            settings={**_common(name, data_root, full=minutes == FULL_MINUTES), "images": images, "minutes": minutes},
        )
        for name, images, minutes in wanted
    ]


def other_cells(data_root: str) -> list[Cell]:
    """Return a cell per data set for Gaussians, for real images from elsewhere, and for samples of another recipe.

    The last ones are measured only where they lie beside the data, in `generators/<data set>/samples.npz`.
    """
    kinds = [(name, kind) for name in HOSPITALS for kind in ("gaussian", "folder")]
    kinds += [(name, "reference") for name in HOSPITALS if _reference(name, data_root).is_file()]
    return [
        Cell(
            name=f"{kind}-{name}",
            compute=measure_other,
            settings={**_common(name, data_root, full=False), "kind": kind},
        )
        for name, kind in kinds
    ]


def _reference(name: str, data_root: str) -> Path:
    return Path(data_root).parent / "generators" / name / "samples.npz"


def generator_cell_name(name: str, images: int, minutes: float) -> str:
    """Return the name of a cell of `generator_cells`."""
    return f"diffusion-{name}-{images or 'all'}-{minutes:g}min"


def _common(name: str, data_root: str, *, full: bool) -> dict[str, Any]:
    """Return what all cells share; what no claim rests on is measured with fewer images and one seed."""
    samples, seeds = (SAMPLES, SEEDS) if full else (SAMPLES // 2, SEEDS[:1])
    return {"data": name, "root": data_root, "samples": samples, "seeds": list(seeds)}


def measure_diffusion(settings: dict[str, Any], folder: Path) -> Result:
    """Train a diffusion model with one thread, draw images, and return what they are worth.

    A training that was broken off goes on; the trained model stays in `folder` for other cells.

    Args:
        settings: `data`, `root`, `images` (0: all), `minutes`, `samples`, `seeds`.
        folder: where models are kept.
    """
    torch.set_num_threads(1)
    data, test = load_hospital(settings["data"], settings["root"], settings["images"])
    kept = folder / "models" / generator_cell_name(settings["data"], settings["images"], settings["minutes"])
    kept.mkdir(parents=True, exist_ok=True)
    plan = TrainingPlan(minutes=settings["minutes"], shift=bool(settings["images"]))
    training = DiffusionTraining(data.train, data.info.classes, plan, checkpoint=kept / "training.pt")
    started = time.monotonic()
    trained = training.run()
    clock_min = (time.monotonic() - started) / 60
    save_generator(training.average, kept, name=settings["data"], provenance=_LEARNED)
    generator = load_generator(kept)
    synthetic, seconds = draw(generator, data, settings["samples"])
    quality = measure_quality(synthetic, data, test, settings["seeds"])
    made = {"training-min": trained.minutes, "clock-min": clock_min, "steps": trained.step}
    return {**quality, **made, "images-per-s": len(synthetic) / seconds}


def measure_other(settings: dict[str, Any], folder: Path) -> Result:
    """Return what images of Gaussians, real ones from elsewhere, or samples of another recipe are worth.

    Args:
        settings: `data`, `root`, `kind`, `samples`, `seeds`.
        folder: not used.
    """
    del folder
    torch.set_num_threads(1)
    data, test = load_hospital(settings["data"], settings["root"], 0)
    started = time.perf_counter()
    if settings["kind"] == "gaussian":
        generator = GaussianGenerator.fit(data.train, data.info.class_names)
        fitted_s = time.perf_counter() - started
        synthetic, seconds = draw(generator, data, settings["samples"])
    elif settings["kind"] == "reference":
        with np.load(_reference(settings["data"], settings["root"])) as stored:
            images, labels = stored["images"][:, None], stored["labels"].reshape(-1).astype(np.int64)
        synthetic, seconds, fitted_s = ImageSet(images=images, labels=labels), 1.0, 0.0
    else:
        synthetic, seconds, fitted_s = elsewhere(settings["data"], settings["root"], settings["samples"]), 1.0, 0.0
    quality = measure_quality(synthetic, data, test, settings["seeds"])
    made = {"training-min": fitted_s / 60, "clock-min": fitted_s / 60, "steps": 0}
    return {**quality, **made, "images-per-s": len(synthetic) / seconds}


def load_hospital(name: str, root: str, images: int) -> tuple[Dataset, ImageSet]:
    """Return the first hospital's data, with `images` training images (0: all), and the whole test split."""
    config = DataConfig(name=name, root=root, partition="iid")
    whole = load_own_folder(config, seed=0)
    data = whole if HOSPITALS.get(name, 1) == 1 else load_site(config, site=0, sites=HOSPITALS[name], seed=0)
    if images:
        chosen = np.sort(numpy_stream(0, "few").permutation(len(data.train))[:images])
        data = Dataset.of_splits(
            data.info,
            {"train": data.train.take(chosen), "validation": data.validation, "test": data.test},
            given_split=data.given_split,
        )
    return data, whole.test


def elsewhere(name: str, root: str, images: int) -> ImageSet:
    """Return real images that the first hospital does not have: of the other hospitals, or the validation split."""
    config = DataConfig(name=name, root=root, partition="iid")
    if HOSPITALS[name] == 1:
        return load_own_folder(config, seed=0).validation
    others = [load_site(config, site=site, sites=HOSPITALS[name], seed=0).train for site in (1, 2)]
    joined = ImageSet.concatenate(others)
    return joined.take(np.sort(numpy_stream(0, "elsewhere").permutation(len(joined))[:images]))


def draw(generator: Generator | DiffusionGenerator, data: Dataset, images: int) -> tuple[ImageSet, float]:
    """Return so many images in the proportions of the training split, and the seconds that drawing them took."""
    stream = numpy_stream(0, "samples")
    labels = np.sort(stream.choice(data.train.labels, images))
    started = time.perf_counter()
    random = torch.Generator().manual_seed(derive_seed(0, "samples"))
    drawn = generator.generate(torch.from_numpy(labels), 1, random)
    info = data.info
    aligned = align(drawn, channels=info.channels, height=info.height, width=info.width).numpy()
    return ImageSet(images=aligned, labels=labels), time.perf_counter() - started
