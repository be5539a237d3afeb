"""What a cache says of itself: the images' shape and meaning, where they come from, how they were chosen."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from aegis_cache.store.provenance import Provenance
from federation.config.table import Table
from federation.datasets.image_set import DatasetInfo

FORMAT = "aegis-cache-1"

Scalar = str | int | float | bool


class GeneratorIdentity(Table):
    """Which generator made the images.

    Attributes:
        kind: "stable-diffusion", "diffusion", "gaussian", "folder" or "phantom".
        name: the model's or folder's name, for people.
        digest: sha256 over everything the images depend on: weights, files, prompts.
        settings: steps, guidance and the like.
        provenance: of the generator alone.
    """

    kind: str
    name: str
    digest: str
    settings: dict[str, Scalar] = Field(default_factory=dict)
    provenance: Provenance


class Purpose(Table):
    """What the images are for: a cache made for anything else is refused.

    Attributes:
        hospital_id: whose cache it is.
        data_set: the data set's name in the hospital's ledger, or of the simulated data set.
        modality: what kind of images, which chooses prompts.
        class_names: in the order of the labels.
        channels: 1 or 3.
        height: in pixels.
        width: in pixels.
        preprocessing: version of the alignment that was applied.
    """

    hospital_id: str
    data_set: str
    modality: str
    class_names: tuple[str, ...] = Field(strict=False)
    channels: int = Field(ge=1)
    height: int = Field(ge=1)
    width: int = Field(ge=1)
    preprocessing: str

    @classmethod
    def of(cls, info: DatasetInfo, *, hospital_id: str, data_set: str, modality: str) -> Self:
        """Return the purpose of images like those that `info` describes, aligned as they are now.

        Args:
            info: shape and classes.
            hospital_id: whose cache it is.
            data_set: the data set's name in the ledger.
            modality: what kind of images.
        """
        from federation.preprocessing import PREPROCESSING  # It needs torch, which looking at a manifest does not.

        return cls(
            hospital_id=hospital_id,
            data_set=data_set,
            modality=modality,
            class_names=info.class_names,
            channels=info.channels,
            height=info.height,
            width=info.width,
            preprocessing=PREPROCESSING,
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return self.channels, self.height, self.width


class Shard(Table):
    """One file of images.

    Attributes:
        name: its file name, which carries the start of its digest.
        images: how many.
        sha256: of the whole file.
        batch: which batch of the build made it.
        seed: of that batch.
    """

    name: str
    images: int = Field(ge=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    batch: int = Field(ge=0)
    seed: int = Field(ge=0)


class Manifest(Table):
    """Everything about a published cache.

    Attributes:
        format: of the files.
        purpose: what the images are for.
        generator: which generator made them.
        provenance: of the cache: of the generator and of everything that chose among its images.
        seed: of the build.
        settings: of the build: everything else that decided which images were accepted.
        shards: the files, in order.
        label_histogram: images per class.
        acceptance: statistics of acceptance, as the build reports them.
        created: UTC time, ISO 8601.
    """

    format: str = FORMAT
    purpose: Purpose
    generator: GeneratorIdentity
    provenance: Provenance
    seed: int
    settings: dict[str, Scalar] = Field(default_factory=dict)
    shards: tuple[Shard, ...] = Field(strict=False)
    label_histogram: tuple[int, ...] = Field(strict=False)
    acceptance: dict[str, Any] = Field(default_factory=dict)
    created: str

    @property
    def images(self) -> int:
        """The number of images."""
        return sum(shard.images for shard in self.shards)
