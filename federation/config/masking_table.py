"""The `masking` table of the run configuration: what the server asks for. A hospital's own policy may demand more."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from federation.config.table import Table

MaskingMode = Literal["none", "sequential", "lambda", "joint", "interleaved"]
REFRESHES = ("none", "subset", "augment", "rotate")
AUTO = "auto"
PIECE = 160
"""Images in memory at a time under `micro-batch = auto`: near the fastest for the paper's network on one core."""

_SMALL = 64 * 64
"""Pixels of an image up to which that holds; larger ones could need more memory than a mini-batch of real images."""

_SIZE = re.compile("[1-9][0-9]{0,6}")
_MICRO_BATCH = re.compile("[1-9][0-9]{0,4}")
_LARGEST_MICRO_BATCH = 65536


class MaskingConfig(Table):
    """Masking by gradients of synthetic images: an empirical defence, never differential privacy."""

    mode: MaskingMode = Field(
        "none",
        description="How gradients of synthetic images join those of real ones. `interleaved`: the synthetic images "
        "are divided among the mini-batches, every step takes the mean over both; `joint`: every step takes the mean "
        "over a mini-batch and all synthetic images; `lambda`: a step on all synthetic images ends each epoch, "
        "weighted by numbers of images; `sequential`: that step without weights, as published, which measurement shows "
        "to protect hardly at all.",
    )
    size: str = Field(
        "2048",
        description="M, synthetic images per local epoch; or `auto`: the fewest with which the expected share of real "
        "images that leave verbatim, (1 - 1/k)^(n + M - 1), is at most `masking.target`.",
    )
    target: float = Field(
        0.05, gt=0, lt=1, description="Under `masking.size = auto`: largest expected share that leaves verbatim."
    )
    capacity: int = Field(
        1024,
        ge=2,
        le=100_000_000,
        description="k, how many bins a malicious server's layer is assumed to have. A server may well have more.",
    )
    micro_batch: str = Field(
        AUTO,
        description="Images, real and synthetic together, in memory at a time: a whole number, at most `masking.size` "
        f"and lowered to it under `masking.size = auto`; or `auto`: {PIECE}, for images of more than 64x64 pixels no "
        "more than `training.batch-size`, and never more than `masking.size`. The gradient depends on it by rounding "
        "alone; memory and speed do. An image alone is computed beside a copy of it without weight.",
    )
    refresh: str = Field(
        "none",
        description="What changes from one update to the next, so that their difference does not cancel the synthetic "
        "images: `none`; `subset`: M drawn from a cache of at least 2M; `augment`: the same ones shifted by up to two "
        "pixels and a little brighter or darker, as real ones then are, too; `rotate`: the next M of the cache, until "
        "all were used. Joined by `+`, for example `subset+augment`.",
    )
    batch_statistics: Literal["refuse", "freeze"] = Field(
        "refuse",
        description="What to do with layers that keep batch statistics, which make a gradient depend on how a batch is "
        "divided: refuse the model, or use their statistics as received.",
    )
    cache: str = Field(
        "",
        description="Absolute folder with a cache for every simulated hospital, in a subfolder of its id; `aegis cache "
        "build --every` makes them. A deployed hospital uses the cache that its site policy names.",
    )

    @field_validator("size", mode="before")
    @classmethod
    def _be_a_number_or_auto(cls, size: object) -> object:
        text = str(size) if type(size) is int else size
        if not isinstance(text, str) or (text != AUTO and not _SIZE.fullmatch(text)):
            raise ValueError(f"Expected a whole number from 1 to 9999999, or {AUTO!r}.")
        return text

    @field_validator("micro_batch", mode="before")
    @classmethod
    def _be_some_images_or_auto(cls, images: object) -> object:
        text = str(images) if type(images) is int else images
        known = isinstance(text, str) and (text == AUTO or _MICRO_BATCH.fullmatch(text))
        if not known or (text != AUTO and int(str(text)) > _LARGEST_MICRO_BATCH):
            raise ValueError(f"Expected a whole number from 1 to {_LARGEST_MICRO_BATCH}, or {AUTO!r}.")
        return text

    @field_validator("refresh")
    @classmethod
    def _be_ways_to_refresh(cls, refresh: str) -> str:
        ways = refresh.split("+")
        alone = "none" in ways or {"subset", "rotate"} <= set(ways)
        if set(ways) - set(REFRESHES) or len(set(ways)) < len(ways) or (alone and len(ways) > 1):
            raise ValueError(f"Expected one of {', '.join(REFRESHES)}, or augment joined with subset or rotate by '+'.")
        return refresh

    @model_validator(mode="after")
    def _check_micro_batch(self) -> Self:
        fixed = self.images is not None and self.micro_batch != AUTO
        if fixed and self.is_on and int(self.micro_batch) > int(self.size):
            raise ValueError(f"Expected micro-batch={self.micro_batch} <= size={self.images}.")
        return self

    @property
    def images(self) -> int | None:
        """M as a number; None for `auto`."""
        return None if self.size == AUTO else int(self.size)

    def piece_of(self, size: int, *, batch_size: int, pixels: int) -> int:
        """Return how many images are in memory at a time.

        Args:
            size: M, a number or what `auto` has come to.
            batch_size: of real images.
            pixels: of an image.
        """
        automatic = PIECE if pixels <= _SMALL else min(PIECE, batch_size)
        return min(automatic if self.micro_batch == AUTO else int(self.micro_batch), size)

    @property
    def is_on(self) -> bool:
        """Whether masking is asked for."""
        return self.mode != "none"

    @property
    def refreshes(self) -> frozenset[str]:
        """The ways in which synthetic images change between updates."""
        return frozenset(self.refresh.split("+")) - {"none"}
