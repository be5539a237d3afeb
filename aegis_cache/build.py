"""Building a cache: generate, align, refuse copies, accept within the budget, check coverage, publish in one step.

Every batch is drawn from a seed of its own and made durable before the next one begins, so that a build that was killed
goes on where it stood and ends with the same images.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from aegis_cache.acceptance.brightness import BrightnessTargets
from aegis_cache.acceptance.budget import Budget
from aegis_cache.acceptance.coverage import ks_allowance, measure_coverage, robust_overlap
from aegis_cache.audit.duplicates import DuplicateFinder
from aegis_cache.build_statistics import require_coverage, summarize_acceptance
from aegis_cache.generation.generator import Generator
from aegis_cache.quotas import share_out, take_missing
from aegis_cache.store.build import BuildPlan, CacheBuild
from aegis_cache.store.manifest import Manifest, Purpose
from aegis_cache.store.provenance import Provenance, Source, combine
from federation.datasets.image_set import ImageSet
from federation.errors import GenerationError
from federation.preprocessing import align
from federation.randomness import derive_seed

# Bounds may change when a build goes on; its images do not depend on them. The seed has a place of its own.
_FREE = ("seed", "attempts", "largest_ks", "least_overlap")

Labels = Literal["as-train", "balanced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """What decides the images beside generator, purpose and private images.

    Attributes:
        images: M, how many the cache is to hold.
        labels: in the proportions of the permitted training images, or as many of each class.
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
    ) -> None:
        """Prepare a build.

        Args:
            generator: makes the images.
            purpose: what they are for.
            settings: how many, and how they are chosen.
            private: permitted training images with one label each: copies of them are refused, and proportions and
                brightness are theirs where the settings say so. None uses no private image.
            budget: accepts or rejects; None accepts all that are no copies.

        Raises:
            GenerationError: the settings need private images that are not there, or make no sense.
        """
        if private is None and (settings.labels == "as-train" or settings.aim_brightness or budget):
            raise GenerationError(
                "Expected permitted training images for labels 'as-train', aimed brightness or a filter, found none: "
                "use balanced labels and no filter."
            )
        if settings.images < 1 or settings.batch_size < 1 or settings.attempts < 1:
            raise GenerationError(
                f"Expected images={settings.images}, batch-size={settings.batch_size} and attempts={settings.attempts} "
                "of at least 1."
            )
        self._generator, self._purpose, self._settings = generator, purpose, settings
        self._private, self._budget = private, budget
        self._finder = None if private is None else DuplicateFinder(private.images, private.labels)
        self.wanted = share_out(settings.images, self._proportions())
        self._targets = BrightnessTargets.of(private) if private is not None and settings.aim_brightness else None

    def plan(self) -> BuildPlan:
        """Return what a resumed build must agree with."""
        chosen = {name: value for name, value in asdict(self._settings).items() if name not in _FREE}
        chosen["filter"] = self._budget.identity if self._budget else "none"
        if self._private is not None:
            chosen["private-images"] = _digest(self._private)
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
            uses.append(f"copies of {count} permitted training images were refused")
            if self._settings.labels == "as-train":
                uses.append(f"classes have the proportions of {count} permitted training images")
            if self._settings.aim_brightness:
                uses.append(f"brightness is that of {count} permitted training images")
            if self._budget:
                uses.append(f"images were accepted by their distance to {count} permitted training images")
        own = Provenance(source=Source.PRIVATE_FILTERED, uses=tuple(uses)) if uses else Provenance.public()
        return combine([self._generator.identity.provenance, own])

    def _proportions(self) -> NDArray[np.float64]:
        classes = len(self._purpose.class_names)
        if self._settings.labels == "balanced" or self._private is None:
            return np.ones(classes)
        return np.bincount(self._private.labels, minlength=classes).astype(np.float64)

    def _take_batch(self, build: CacheBuild, missing: NDArray[np.int64], tallies: Sequence[dict[str, Any]]) -> None:
        number = len(build.batches)
        seed = derive_seed(self._settings.seed, "cache", number)
        labels = self._draw_labels(missing, tallies)
        images = self._draw_images(labels, seed, number)
        known = {digest for notes in tallies for digest in notes["digests"]}
        digests, fresh = _digests_of(images), np.ones(len(images), dtype=bool)
        for index, digest in enumerate(digests):
            fresh[index] = digest not in known
            known.add(digest)
        if self._finder is not None:
            fresh &= ~self._finder.find(images).found
        within, distances = self._judge(images, labels)
        chosen = take_missing(labels, fresh & within, missing)
        build.append(
            number,
            seed,
            images[chosen],
            labels[chosen],
            {
                "candidates": len(labels),
                "drawn": np.bincount(labels, minlength=len(missing)).tolist(),
                "copies": np.bincount(labels[~fresh], minlength=len(missing)).tolist(),
                "rejected": np.bincount(labels[fresh & ~within], minlength=len(missing)).tolist(),
                "distance": float(distances[chosen].sum()),
                "digests": [digests[index] for index in chosen],
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

    def _draw_images(self, labels: NDArray[np.int64], seed: int, batch: int) -> NDArray[np.uint8]:
        drawn = self._generator.generate(torch.from_numpy(labels), 1, torch.Generator().manual_seed(seed))
        purpose = self._purpose
        if not bool(torch.isfinite(drawn).all()):
            raise GenerationError(f"The generator {self._generator.identity.name!r} made values that are not finite.")
        aligned = align(drawn, channels=purpose.channels, height=purpose.height, width=purpose.width).numpy()
        return self._targets.aim(aligned, labels, batch=batch) if self._targets else aligned

    def _judge(
        self, images: NDArray[np.uint8], labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        if self._budget is None:
            return np.ones(len(images), dtype=bool), np.zeros(len(images))
        within, distances = self._budget.accept(ImageSet(images=images, labels=labels))
        return within.numpy(), distances.numpy()

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
        """Return the statistics of acceptance; refuse to go on where coverage is too poor."""
        tallies, accepted = [batch.notes for batch in build.batches], build.accepted_histogram
        found = summarize_acceptance(self._purpose.class_names, accepted, tallies, self._budget)
        if self._private is None:
            return found
        coverage = measure_coverage(build.images(), self._private.images)
        limits = self._settings
        require_coverage(
            coverage,
            overlap=robust_overlap(build.images(), self._private.images),
            largest_ks=limits.largest_ks + ks_allowance(int(accepted.sum()), len(self._private)),
            least_overlap=limits.least_overlap,
        )
        return {**found, "coverage": coverage.as_dict()}

    def _progress(self, build: CacheBuild, candidates: int, pace_s: float) -> BuildProgress:
        accepted, wanted = int(build.accepted_histogram.sum()), self._settings.images
        expected = candidates / max(accepted, 1) * (wanted - accepted)
        return BuildProgress(accepted=accepted, wanted=wanted, candidates=candidates, remaining_s=pace_s * expected)


def _digests_of(images: NDArray[np.uint8]) -> list[str]:
    return [hashlib.sha256(image.tobytes()).hexdigest()[:24] for image in images]


def _digest(images: ImageSet) -> str:
    found = hashlib.sha256(np.ascontiguousarray(images.images).tobytes())
    found.update(np.ascontiguousarray(images.labels).tobytes())
    return found.hexdigest()
