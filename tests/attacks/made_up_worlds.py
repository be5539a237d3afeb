"""Small made-up data sets, what a server knows of them, and one exchange over one of them, for tests of attacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attacks.attack import Attack
from attacks.evaluation.exchange import Exchange, Stage
from attacks.evaluation.trial import Trial, usual_plan
from attacks.metrics.pairing import pair_by_oracle
from attacks.metrics.quality import measure_psnr
from attacks.threat_model import ServerView, ThreatModel, grant
from attacks.world import World
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.randomness import numpy_stream

Shape = tuple[int, int, int]
SMALL: Shape = (1, 8, 8)
VERBATIM_DB = 60.0


def make_info(shape: Shape = SMALL, classes: int = 4) -> DatasetInfo:
    """Return the description of images of `shape`."""
    channels, height, width = shape
    return DatasetInfo(
        name="scans",
        task=Task.MULTICLASS,
        class_names=tuple(f"class-{number}" for number in range(classes)),
        channels=channels,
        height=height,
        width=width,
    )


def make_images(count: int, seed: int, *, shape: Shape = SMALL, classes: int = 4) -> ImageSet:
    """Return random images, all different, whose brightness is nearly normal: mean 0.5, standard deviation 0.12."""
    draw = np.random.default_rng(seed)
    brightness = draw.normal(127.5, 30.0, size=(count, 1, 1, 1))
    pixels = brightness + draw.normal(0.0, 25.0, size=(count, *shape))
    return ImageSet(
        images=pixels.clip(0, 255).round().astype(np.uint8), labels=draw.integers(classes, size=count).astype(np.int64)
    )


def make_dataset(
    *, train: int = 400, validation: int = 150, test: int = 250, shape: Shape = SMALL, seed: int = 0
) -> Dataset:
    """Return a data set whose three splits share no image."""
    whole = make_images(train + validation + test, seed, shape=shape)
    borders = np.split(np.arange(len(whole)), [train, train + validation])
    parts = dict(zip(("train", "validation", "test"), (whole.take(part) for part in borders), strict=True))
    return Dataset.of_splits(make_info(shape), parts, given_split=True)


def make_world(*, train: int = 400, shape: Shape = SMALL, generated: int = 0, seed: int = 0) -> World:
    """Return a world with a generator of `generated` images; 0 for a perfect one."""
    pool = make_images(generated, 1000 + seed, shape=shape) if generated else None
    return World.of(make_dataset(train=train, shape=shape, seed=seed), generated=pool)


def make_view(*, auxiliary: int = 300, generated: int = 60, shape: Shape = SMALL, seed: int = 0) -> ServerView:
    """Return what a server has that knows everything."""
    own, drawn = make_images(auxiliary, 10 + seed, shape=shape), make_images(generated, 20 + seed, shape=shape)
    return ServerView(
        info=make_info(shape),
        stream=np.random.default_rng(seed),
        auxiliary=own.images.astype(np.float32) / np.float32(255),
        auxiliary_labels=own.labels,
        hyperparameters=usual_plan(),
        generated=drawn.images.astype(np.float32) / np.float32(255),
    )


def set_stage(attack: Attack, world: World, trial: Trial, folder: Path, *, seed: int = 0) -> Stage:
    """Return `attack` ready to play, with the least threat model that it can run under."""
    model = ThreatModel(rounds=attack.needs.rounds, sees=attack.needs.sees)
    view = grant(world.view(trial.plan, numpy_stream(seed, "server")), attack.needs, model)
    return Stage(attack, attack.begin(view), world, trial, seed=seed, folder=folder)


def play(attack: Attack, world: World, trial: Trial, folder: Path, *, seed: int = 0) -> Exchange:
    """Return the first exchange of `attack`."""
    return set_stage(attack, world, trial, folder, seed=seed).play(0)


def read_by_round(exchange: Exchange) -> NDArray[np.float64]:
    """Return the raw PSNR in dB of each image's candidate by round: shape (N, R), 0 where there is none."""
    rows = [pair_by_oracle(column).select(exchange.candidates) for column in exchange.places.T]
    return np.stack([measure_psnr(exchange.real, row).raw_db for row in rows], axis=1)
