"""`aegis cache build --every`: a cache for each simulated hospital, one after the other, in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from aegis_cache.store.build_folder import BuildFolder
from aegis_cache.store.manifest import Manifest
from deploy.cache.building import build_cache, describe_cache_build
from deploy.cache.construction import made_for_these_images, open_own
from deploy.cache.permitted import PermittedImages, permit_simulated
from deploy.cache.request import BuildRequest, Place, simulated_id
from federation.errors import AegisError, CacheError, ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one hospital's cache.

    Attributes:
        hospital_id: whose.
        status: "built", "kept" (it was there), "refused" (wrong usage) or "failed".
        manifest: of the cache; None where there is none.
        reason: why there is none.
    """

    hospital_id: str
    status: str
    manifest: Manifest | None = None
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines."""
        found = {"hospital-id": self.hospital_id, "status": self.status}
        if self.manifest is None:
            return {**found, "reason": self.reason}
        return {**found, "images": self.manifest.images, "provenance": self.manifest.provenance.source.value}

    def __str__(self) -> str:
        if self.manifest is None:
            return f"{self.hospital_id}: {self.status}: {self.reason}"
        kind, source = self.manifest.generator.kind, self.manifest.provenance.source.value
        return f"{self.hospital_id}: {self.status}, {self.manifest.images} images by {kind}, provenance {source}"


def build_every(request: BuildRequest, place: Place, console: Console) -> list[Outcome]:
    """Build the cache of every hospital, whatever becomes of the others', and return what became of each.

    Args:
        request: what is to be built.
        place: the folder of all caches, and how many hospitals there are. With `place.resume`, a cache that is
            published and sound, and beside which no build is unfinished, is kept as it is.
        console: where progress, and a line for every hospital, are shown.
    """
    outcomes = []
    for hospital in range(place.hospitals):
        outcome = _build_one(request, place.of_hospital(hospital), console)
        console.print(str(outcome), style="red" if outcome.manifest is None else None, markup=False, highlight=False)
        outcomes.append(outcome)
    return outcomes


def describe_every(request: BuildRequest, place: Place, console: Console) -> list[dict[str, Any]]:
    """Return what would be built for every hospital.

    Raises:
        AegisError: one would be refused.
    """
    places = [place.of_hospital(hospital) for hospital in range(place.hospitals)]
    return [describe_cache_build(request, _permitted(own), own, console) for own in places]


def summarize(outcomes: Sequence[Outcome]) -> tuple[str, int]:
    """Return a sentence on all outcomes, and the exit code: 0 if all are there, 2 if every one was refused, else 1."""
    lacking = [outcome for outcome in outcomes if outcome.manifest is None]
    there = f"{len(outcomes) - len(lacking)} of {len(outcomes)} hospitals have their caches"
    if not lacking:
        return f"{there}.", 0
    names = ", ".join(outcome.hospital_id for outcome in lacking)
    refused = all(outcome.status == "refused" for outcome in outcomes)
    return f"{there}, not {names}: see above, and go on with --resume.", 2 if refused else 1


def _build_one(request: BuildRequest, place: Place, console: Console) -> Outcome:
    hospital_id = simulated_id(place.hospital)
    try:
        permitted = _permitted(place)
        kept = _find_sound(place, permitted) if place.resume else None
        manifest = kept or build_cache(request, permitted, place, console).manifest
    except (AegisError, OSError) as error:
        status = "refused" if isinstance(error, ConfigurationError) else "failed"
        return Outcome(hospital_id=hospital_id, status=status, reason=str(error))
    return Outcome(hospital_id=hospital_id, status="kept" if kept else "built", manifest=manifest)


def _find_sound(place: Place, permitted: PermittedImages) -> Manifest | None:
    """Return the manifest of the hospital's cache if it needs no building: sound, its own, and not being replaced."""
    if BuildFolder.exists_in(place.folder):
        return None
    try:
        opened = open_own(place.folder, permitted)
    except CacheError:
        return None
    return opened.manifest if made_for_these_images(opened, permitted) else None


def _permitted(place: Place) -> PermittedImages:
    return permit_simulated(place.assign or [], place.app, hospital=place.hospital, hospitals=place.hospitals)
