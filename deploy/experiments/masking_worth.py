"""What images of the masking experiment's generators are worth before any federation: what a network learns from them.

A client that is masked trains mostly on synthetic images, so its accuracy is theirs first. Here a network learns from
the images of one generator alone, and another as long from as many real ones; both are tested on the validation split,
so that the test split has no part in choosing a generator. `elsewhere` has learned from that split, which flatters it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from deploy.experiments.cache_quality import train_and_test
from deploy.experiments.cells import Cell, Result
from deploy.experiments.masking_sources import MINUTES, PER_CLASS, STEPS, draw
from federation.config import DataConfig
from federation.datasets.sites import load_own_folder
from federation.randomness import numpy_stream

IMAGES = 4096
SEEDS = (0, 1, 2)


def worth_cells(data_root: str) -> list[Cell]:
    """Return a cell per data set and trained generator; each needs the finished pool."""
    wanted = [(name, source) for name in PER_CLASS for source in MINUTES] + [(name, "thorough") for name in STEPS]
    return [
        Cell(
            name=worth_name(name, source),
            compute=measure_worth,
            settings={
                "data": name,
                "root": data_root,
                "source": source,
                "budget": STEPS[name] if source == "thorough" else MINUTES[source],
                "images": IMAGES,
                "seeds": list(SEEDS),
            },
        )
        for name, source in wanted
    ]


def worth_name(name: str, source: str) -> str:
    """Return the name of a cell of `worth_cells`."""
    return f"worth-{source}-{name}"


def measure_worth(settings: dict[str, Any], folder: Path) -> Result:
    """Train networks on synthetic and on real images, and return their accuracies on the validation split.

    Args:
        settings: `data`, `root`, `source`, `budget` of the pool's generator, `images`, `seeds`.
        folder: of the experiment, with the pools.

    Returns:
        `synthetic` and `real`, an accuracy per seed each, in [0, 1].
    """
    torch.set_num_threads(1)
    config = DataConfig(name=settings["data"], root=settings["root"])
    data, count = load_own_folder(config, seed=0), settings["images"]
    synthetic = draw(settings["source"], data, config, count, folder, 0)
    real = data.train.take(numpy_stream(0, "worth").permutation(len(data.train))[:count])
    return {
        kind: [train_and_test(images, data.info, data.validation, seed) for seed in settings["seeds"]]
        for kind, images in (("synthetic", synthetic), ("real", real))
    }
