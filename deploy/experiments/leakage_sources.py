"""The images that the leakage experiment attacks, and the pools of generated images that mask them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from aegis_cache.generation.matched import SAMPLE, MomentMatch
from aegis_cache.proportions import Labels
from attacks.world import World
from deploy.experiments.cache_generators import FULL_MINUTES
from deploy.experiments.cells import Cell
from deploy.experiments.masking_federations import OWN
from deploy.experiments.masking_sources import make_pool
from federation.config import DataConfig
from federation.datasets.image_set import Dataset, ImageSet
from federation.datasets.sites import load_own_folder
from federation.preprocessing import to_bytes, to_unit_interval
from federation.randomness import numpy_stream

DATA = ("pneumoniamnist", "organamnist", "retinamnist")
GENERATED, MATCHED, REAL = "generator", "matched", "real"
_PER_CLASS = {"pneumoniamnist": 5100, "organamnist": 930, "retinamnist": 2050}


def pool_cells(data_root: str) -> list[Cell]:
    """Return a cell per data set that adapts a diffusion model to training images and draws a pool of its images.

    OrganAMNIST's has learned from a sixth of the training split, the others' from all of it.
    """
    return [
        Cell(
            name=f"pool-{name}",
            compute=make_pool,
            settings={
                "data": name,
                "root": data_root,
                "source": "adapted",
                "minutes": FULL_MINUTES,
                "per-class": _PER_CLASS[name],
            },
        )
        for name in DATA
    ]


def load_world(name: str, root: str, source: str, folder: Path, *, classes: int = 0, labels: Labels = OWN) -> World:
    """Return the images of an experiment.

    Args:
        name: of the data set.
        root: folder with the MedMNIST files.
        source: of synthetic images: "generator", "matched" for the same with moments as `aegis cache build
            --match-moments` brings them, or "real" for images of the training split that are not attacked.
        folder: of the experiment, with the pools.
        classes: of how many classes, drawn once, the victims' images are, and the server's own, which knows them; 0:
            of all.
        labels: of synthetic images, see `aegis_cache.proportions`.
    """
    dataset = load_own_folder(DataConfig(name=name, root=root), seed=0)
    generated = None
    if source != REAL:
        with np.load(folder / "pools" / f"adapted-{name}" / "images.npz") as stored:
            generated = ImageSet(images=stored["images"], labels=stored["labels"])
    if source == MATCHED and generated is not None:
        generated = _match(generated, dataset.train)
    if classes:
        held = numpy_stream(0, "classes").permutation(dataset.info.classes)[:classes]
        dataset = _restrict(dataset, held)
    return replace(World.of(dataset, generated=generated), labels=labels)


def _restrict(dataset: Dataset, held: NDArray[np.int64]) -> Dataset:
    """Return the images of the classes `held` alone; the others keep their names."""
    parts = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    chosen = {name: part.take(np.flatnonzero(np.isin(part.labels, held))) for name, part in parts.items()}
    return Dataset.of_splits(dataset.info, chosen, given_split=True)


def _match(generated: ImageSet, real: ImageSet) -> ImageSet:
    """Return the pool with the moments of the training images, in the proportions that these have of classes."""
    pixels = to_unit_interval(torch.from_numpy(generated.images.copy()))
    stream = numpy_stream(0, "matched")
    wanted = stream.choice(real.labels, SAMPLE)
    places = [stream.choice(np.flatnonzero(generated.labels == label)) for label in wanted]
    match = MomentMatch.fit(to_unit_interval(torch.from_numpy(real.images.copy())), pixels[places])
    return ImageSet(images=to_bytes(match.apply(pixels)).numpy(), labels=generated.labels)
