"""Stand-ins that builds are tested with: real images, and a generator whose faults are chosen."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from aegis_cache.store.manifest import GeneratorIdentity, Purpose
from aegis_cache.store.provenance import Provenance
from federation.datasets.image_set import ImageSet

CLASSES = ("dark", "bright")
SIDE = 6


def draw_real(per_class: int, seed: int) -> ImageSet:
    """Two classes of noise around two grey levels, each image at a brightness of its own."""
    stream = np.random.default_rng(seed)
    labels = np.repeat(np.arange(2), per_class)
    level = 80 + 80 * labels + stream.normal(0, 15, size=2 * per_class)
    images = level[:, None, None, None] + stream.normal(0, 12, size=(2 * per_class, 1, SIDE, SIDE))
    return ImageSet(images=np.clip(images, 0, 255).astype(np.uint8), labels=labels)


def make_purpose(**changes: object) -> Purpose:
    facts = {
        "hospital_id": "charite",
        "data_set": "chest-2026",
        "modality": "chest-xray",
        "class_names": CLASSES,
        "channels": 1,
        "height": SIDE,
        "width": SIDE,
        "preprocessing": "unit-interval-1",
    }
    return Purpose.model_validate({**facts, **changes})


class MadeUpGenerator:
    """Draws as `draw_real` does; it can be off in brightness, copy, or break.

    Attributes:
        calls: how often images were asked for.
    """

    def __init__(
        self,
        *,
        shift: float = 0.0,
        copies: ImageSet | None = None,
        wrong: float = 0.0,
        broken_after: int | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self._shift, self._copies, self._wrong, self._broken_after = shift, copies, wrong, broken_after
        self._provenance = provenance or Provenance.public()
        self.calls = 0

    @property
    def identity(self) -> GeneratorIdentity:
        return GeneratorIdentity(kind="gaussian", name="made up", digest="0" * 64, provenance=self._provenance)

    def generate(self, labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
        if self.calls == self._broken_after:
            raise KeyboardInterrupt
        self.calls += 1
        wanted = labels.repeat_interleave(n)
        wrong = torch.rand(len(wanted), generator=generator) < self._wrong
        shown = torch.where(wrong, 1 - wanted, wanted)
        level = 80 + 80 * shown + 15 * torch.randn(len(wanted), generator=generator) + self._shift
        images = level[:, None, None, None] + 12 * torch.randn((len(wanted), 1, SIDE, SIDE), generator=generator)
        images = images / 255
        if self._copies is not None:
            images[:2] = torch.from_numpy(self._copies.images[:2].astype(np.float32)) / 255
        return images.clamp(0, 1)
