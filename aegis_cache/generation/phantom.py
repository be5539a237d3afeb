"""Fresh images of the built-in data set `phantom`: for demonstrations and tests, from a procedure that everyone has."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import Tensor

from aegis_cache.generation.request import expand_request
from aegis_cache.store.manifest import GeneratorIdentity, Scalar
from aegis_cache.store.provenance import Provenance
from federation.config.tables import DataConfig
from federation.datasets.image_set import ImageSet
from federation.datasets.phantom import load_phantom
from federation.preprocessing import to_unit_interval
from federation.randomness import derive_seed

PHANTOM = "phantom"
_FORMAT = "aegis-phantom-1"
_FEWEST = 60  # Images that the procedure draws at least; below, a split might be empty.


class PhantomGenerator:
    """Draws phantom images by the public procedure, from seeds that no data set can have; no private image has a part.

    The data set's seeds are 0 or more, those of the generator are negative: both never draw from the same stream.
    """

    def __init__(self, data: DataConfig, *, stream: str) -> None:
        """Draw images like those of `data`.

        Args:
            data: whose number of phantom classes and difficulty the images have; nothing else of it is looked at.
            stream: name of the hospital they are for, so that no two hospitals get the same images from one seed.
        """
        self._data = DataConfig(phantom_classes=data.phantom_classes, phantom_difficulty=data.phantom_difficulty)
        self._stream = stream
        probe, self._class_names = self._draw(_FEWEST, seed=0)
        settings: dict[str, Scalar] = {
            "classes": data.phantom_classes,
            "difficulty": data.phantom_difficulty,
            "stream": stream,
        }
        self._identity = GeneratorIdentity(
            kind=PHANTOM,
            name=f"phantom images of {data.phantom_classes} classes",
            # What the procedure draws is its version: a number beside it could be forgotten.
            digest=hashlib.sha256(json.dumps([_FORMAT, settings, probe.digest]).encode()).hexdigest(),
            settings=settings,
            provenance=Provenance.public(),
        )

    @property
    def identity(self) -> GeneratorIdentity:
        """Which settings and version of the procedure these are."""
        return self._identity

    def generate(self, labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Return `n` images of each of `labels`, float32 in [0, 1], shape (L * n, 1, 28, 28).

        Raises:
            GenerationError: a label names no class.
        """
        wanted = expand_request(labels, n, self._class_names)
        counts = torch.bincount(wanted, minlength=len(self._class_names))
        seed = int(torch.randint(2**62, (1,), generator=generator))
        # The procedure draws as many of each class.
        pool, _ = self._draw(max(_FEWEST, int(counts.max()) * len(counts)), seed=seed)
        drawn, classes = torch.from_numpy(pool.images), torch.from_numpy(pool.labels)
        images = torch.empty((len(wanted), *drawn.shape[1:]), dtype=torch.uint8)
        for label in wanted.unique().tolist():
            images[wanted == label] = drawn[classes == label][: int(counts[label])]
        return to_unit_interval(images)

    def _draw(self, count: int, *, seed: int) -> tuple[ImageSet, tuple[str, ...]]:
        """Return `count` images of equally frequent classes, and the names of these."""
        wanted = self._data.model_copy(update={"phantom_examples": count})
        found = load_phantom(wanted, seed=-1 - derive_seed(seed, "phantom generator", self._stream))
        return ImageSet.concatenate([found.train, found.validation, found.test]), found.info.class_names
