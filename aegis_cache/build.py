"""Building a cache: generate, align, refuse copies, accept within the budget, check coverage, publish in one step.

Every batch is drawn from a seed of its own and made durable before the next one begins, so that a build that was killed
goes on where it stood and ends with the same images.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aegis_cache.acceptance.brightness import BrightnessTargets
from aegis_cache.acceptance.budget import Budget
from aegis_cache.acceptance.coverage import (
    FEWEST_TO_TEST,
    expected_protection,
    ks_allowance,
    match_proportions,
    measure_coverage,
    robust_overlap,
)
from aegis_cache.build_statistics import require_coverage, summarize_acceptance
from aegis_cache.generation.generator import Generator
from aegis_cache.proportions import Labels, class_proportions
from aegis_cache.quotas import share_out, take_missing
from aegis_cache.screening import Screen, digest_images
from aegis_cache.store.build import BuildPlan, CacheBuild
from aegis_cache.store.manifest import Manifest, Purpose
from aegis_cache.store.provenance import Provenance, Source, combine
from federation.datasets.image_set import ImageSet
from federation.errors import GenerationError
from federation.preprocessing import align
from federation.randomness import derive_seed

# Bounds may change when a build goes on; its images do not depend on them. The seed has a place of its own.
_FREE = ("seed", "attempts", "largest_ks", "least_overlap")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """What decides the images beside generator, purpose and private images.

    Attributes:
        images: M, how many the cache is to hold.
        labels: see `class_proportions`.
        aim_brightness: whether brightness is aimed at the private distribution.
        batch_size: candidates at a time.
        attempts: candidates per wanted image at most.
        largest_ks: of brightness and projections, beyond what chance explains; more is refused.
        least_overlap: of brightness bins, relative to resampled real images; less is refused.
        seed: decides every draw.
    """

    images: int = 2048
    labels: Labels = "as-train"
    aim_brightness: bool = False
    batch_size: int = 256
    attempts: float = 4.0
    largest_ks: float = 0.08
    least_overlap: float = 0.85
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildProgress:
    """Where a build stands.

    Attributes:
        accepted: images in the cache so far.
        wanted: images it is to hold.
        candidates: images generated for it.
        remaining_s: time left at the pace of this process so far; None before its first batch.
    """

    accepted: int
    wanted: int
    candidates: int
    remaining_s: float | None


class Builder:
    """One build.

    Attributes:
        wanted: images per class that the cache will hold.
    """

    def __init__(
        self,
        generator: Generator,
        purpose: Purpose,
        settings: BuildSettings,
        *,
        private: ImageSet | None = None,
        budget: Budget | None = None,
        uses: Sequence[str] = (),
    ) -> None:
        """Prepare a build.

        Args:
            generator: makes the images.
            purpose: what they are for.
            settings: how many, and how they are chosen.
            private: permitted training images with one label each: copies of them are refused, and proportions and
                brightness are theirs where the settings say so. None uses no private image.
            budget: accepts or rejects; None accepts all that are no copies.
            uses: further ways in which private images have a part, a sentence each: of what `budget` is made.

        Raises:
            GenerationError: the settings need private images that are not there, or make no sense.
        """
        if private is None and (settings.labels != "balanced" or settings.aim_brightness or budget):
            raise GenerationError(
                f"Expected permitted training images for labels {settings.labels!r}, aimed brightness or a filter, "
                "found none: use balanced labels and no filter."
            )
        if settings.images < 1 or settings.batch_size < 1 or settings.attempts < 1:
            raise GenerationError(
                f"Expected images={settings.images}, batch-size={settings.batch_size} and attempts={settings.attempts} "
                "of at least 1."
            )
        self._generator, self._purpose, self._settings = generator, purpose, settings
        self._private, self._budget, self._uses = private, budget, tuple(uses)
        self._screen = Screen(private, budget)
        self.wanted = share_out(settings.images, self._proportions())
        self._require_references()
        self._targets = BrightnessTargets.of(private) if private is not None and settings.aim_brightness else None

    def plan(self) -> BuildPlan:
        """Return what a resumed build must agree with."""
        chosen = {name: value for name, value in asdict(self._settings).items() if name not in _FREE}
        chosen["filter"] = self._budget.identity if self._budget else "none"
        if self._private is not None:
            chosen["private-images"] = self._private.digest
        return BuildPlan(
            purpose=self._purpose, generator=self._generator.identity, seed=self._settings.seed, settings=chosen
        )

    def run(
        self, folder: Path, *, resume: bool = False, show: Callable[[BuildProgress], None] = lambda _: None
    ) -> Manifest:
        """Build into `folder` and publish there; an older cache in it is replaced in one step, at the end.

        Args:
            folder: of the cache, made if missing.
            resume: go on with an unfinished build of the same plan.
            show: told of every batch.

        Raises:
            GenerationError: too few candidates were accepted, or their coverage is too poor; nothing is published.
            CacheError: the folder is busy, full or not writable, or holds another unfinished build.
        """
        with CacheBuild.begin(folder, self.plan(), resume=resume) as build:
            started, before = time.monotonic(), sum(batch.notes["candidates"] for batch in build.batches)
            while (missing := self.wanted - build.accepted_histogram).any():
                tallies = [batch.notes for batch in build.batches]
                self._require_patience(tallies, missing)
                self._take_batch(build, missing, tallies)
                done = sum(batch.notes["candidates"] for batch in build.batches)
                show(self._progress(build, done, (time.monotonic() - started) / (done - before)))
            return build.publish(
                provenance=self.provenance(),
                acceptance=self._summarize(build),
                created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            )

    def provenance(self) -> Provenance:
        """Return the provenance of the cache that this build makes."""
        uses = []
        if self._private is not None:
            count = len(self._private)
            smoothed = ", smoothed" if self._settings.labels == "smoothed" else ""
            uses.append(f"copies of {count} permitted training images were refused")
            if self._settings.labels != "balanced":
                uses.append(f"classes have the proportions of {count} permitted training images{smoothed}")
            if self._settings.aim_brightness:
                uses.append(f"brightness is that of {count} permitted training images")
            if self._budget:
                uses.append(f"images were accepted by their distance to {count} permitted training images")
            uses.append(f"the spread of {count} permitted training images decided about publication, and is reported")
        uses += self._uses
        own = Provenance(source=Source.PRIVATE_FILTERED, uses=tuple(uses)) if uses else Provenance.public()
        return combine([self._generator.identity.provenance, own])

    def _require_references(self) -> None:
        """Check that every class that is wanted has private images to be compared with."""
        limits = self._budget.limits if self._budget else range(len(self.wanted))
        missing = [self._purpose.class_names[label] for label in np.flatnonzero(self.wanted) if label not in limits]
        if missing:
            raise GenerationError(
                f"Expected permitted training images of every class that is wanted, found none of {missing}: use "
                "--labels as-train, or --filter none."
            )

    def _proportions(self) -> NDArray[np.float64]:
        classes = len(self._purpose.class_names)
        own = None if self._private is None else np.bincount(self._private.labels, minlength=classes)
        return class_proportions(self._settings.labels, own, classes)

    def _take_batch(self, build: CacheBuild, missing: NDArray[np.int64], tallies: Sequence[dict[str, Any]]) -> None:
        number = len(build.batches)
        seed = derive_seed(self._settings.seed, "cache", number)
        labels = self._draw_labels(missing, tallies)
        images = self._draw_images(labels, seed)
        known = {digest for notes in tallies for digest in notes["digests"]}
        within, distances = self._screen.judge(images, labels)
        fresh = self._screen.find_fresh(images, known)
        chosen = take_missing(labels, fresh & within, missing)
        kept = self._targets.aim(images[chosen], labels[chosen], batch=number) if self._targets else images[chosen]
        still = self._screen.find_fresh(kept, known)
        digests = [digest for digest, is_fresh in zip(digest_images(kept), still, strict=True) if is_fresh]
        copies = np.bincount(labels[~fresh], minlength=len(missing)) + np.bincount(
            labels[chosen[~still]], minlength=len(missing)
        )
        build.append(
            number,
            seed,
            kept[still],
            labels[chosen[still]],
            {
                "candidates": len(labels),
                "drawn": np.bincount(labels, minlength=len(missing)).tolist(),
                "copies": copies.tolist(),
                "rejected": np.bincount(labels[fresh & ~within], minlength=len(missing)).tolist(),
                "distance": float(distances[chosen[still]].sum()),
                "digests": digests,
            },
        )

    def _draw_labels(self, missing: NDArray[np.int64], tallies: Sequence[dict[str, Any]]) -> NDArray[np.int64]:
        """Return the labels of the next batch: more of a class that lacks more, or of which fewer were accepted."""
        drawn = sum((np.array(notes["drawn"]) for notes in tallies), np.zeros(len(missing)))
        lost = sum((np.array(notes["copies"]) + notes["rejected"] for notes in tallies), np.zeros(len(missing)))
        rate = np.maximum((drawn - lost + 1) / (drawn + 1), 0.05)
        needed = np.ceil(missing / rate)
        size = min(self._settings.batch_size, int(needed.sum()))
        return np.repeat(np.arange(len(missing)), share_out(size, needed))

    def _draw_images(self, labels: NDArray[np.int64], seed: int) -> NDArray[np.uint8]:
        drawn = self._generator.generate(torch.from_numpy(labels), 1, torch.Generator().manual_seed(seed))
        purpose = self._purpose
        if not bool(torch.isfinite(drawn).all()):
            raise GenerationError(f"The generator {self._generator.identity.name!r} made values that are not finite.")
        aligned: NDArray[np.uint8] = align(
            drawn, channels=purpose.channels, height=purpose.height, width=purpose.width
        ).numpy()
        return aligned

    def _require_patience(self, tallies: Sequence[dict[str, Any]], missing: NDArray[np.int64]) -> None:
        candidates = sum(notes["candidates"] for notes in tallies)
        allowed = math.ceil(self._settings.attempts * self._settings.images)
        if candidates < allowed:
            return
        names = self._purpose.class_names
        lacking = ", ".join(f"{names[label]!r} {missing[label]}" for label in np.flatnonzero(missing))
        raise GenerationError(
            f"Expected {self._settings.images} accepted images after at most {allowed} candidates, still missing after "
            f"{candidates}: {lacking} ({sum(sum(notes['rejected']) for notes in tallies)} were rejected, "
            f"{sum(sum(notes['copies']) for notes in tallies)} were copies). Nothing was published; accepted images "
            "are kept: allow more --attempts with --resume, or start with --fresh and a generator that fits better "
            "(where the policy allows it, one adapted to the permitted images), a higher --pass-rate, or --filter none."
        )

    def _summarize(self, build: CacheBuild) -> dict[str, Any]:
        """Return the statistics of acceptance; refuse poor coverage of images of classes that the hospital has."""
        tallies, accepted = [batch.notes for batch in build.batches], build.accepted_histogram
        found = summarize_acceptance(self._purpose.class_names, accepted, tallies, self._budget)
        found["expected-protection"] = expected_protection(int(accepted.sum()))
        found["copies-checked"] = self._private is not None
        if self._private is None:
            return found
        comparable = np.isin(build.labels(), self._private.labels)
        images, labels = build.images()[comparable], build.labels()[comparable]
        real = match_proportions(self._private, labels)
        coverage = measure_coverage(images, real.images)
        tested = min(len(images), len(real)) >= FEWEST_TO_TEST
        if tested:
            require_coverage(
                coverage,
                overlap=robust_overlap(images, real.images),
                largest_ks=self._settings.largest_ks + ks_allowance(len(images), len(real)),
                least_overlap=self._settings.least_overlap,
            )
        return {**found, "coverage": {**coverage.as_dict(), "tested": tested}}

    def _progress(self, build: CacheBuild, candidates: int, pace_s: float) -> BuildProgress:
        accepted, wanted = int(build.accepted_histogram.sum()), self._settings.images
        expected = candidates / max(accepted, 1) * (wanted - accepted)
        return BuildProgress(accepted=accepted, wanted=wanted, candidates=candidates, remaining_s=pace_s * expected)
