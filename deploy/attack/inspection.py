"""`aegis attack run --records`: what the server could have read out of these updates; exit code 1 where it could."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import track

from attacks.records.inspecting import Inspection, inspect_record
from attacks.records.matching import STRICTEST, Match, match_images, read_in_any
from attacks.records.reading import RecordedUpdate, read_records
from attacks.world import World
from deploy.attack.images import load_by_name, load_by_policy
from deploy.attack.pictures import Row, write_pictures
from federation.errors import ConfigurationError

_CAPTION = "TEST OF AN ATTACK. THIS PICTURE SHOWS PATIENTS: KEEP IT IN THE HOSPITAL."
_NO_IMAGES = "No images were given, so nobody can say which candidates are real: --images-from site.toml tells."


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """The images that the updates were trained on, if they are at hand.

    Attributes:
        policy: the hospital's site.toml; None for none.
        data: name of a data set; None for none.
        data_root: of its files.
    """

    policy: Path | None = None
    data: str | None = None
    data_root: Path | None = None

    def load(self) -> World | None:
        """Return the images, real and foreign; None where none are named.

        Raises:
            ConfigurationError: two are named, or a root without a name.
            DataError: they are missing or damaged, or there are no foreign ones.
        """
        if self.policy is not None and (self.data is not None or self.data_root is not None):
            raise ConfigurationError("Expected --images-from or --data, found both: the policy names the images.")
        if self.data is None and self.data_root is not None:
            raise ConfigurationError("Expected --data with --data-root, found the root alone: name the data set.")
        if self.policy is not None:
            return World.of(load_by_policy(self.policy))
        return None if self.data is None else World.of(load_by_name(self.data, self.data_root))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One recorded update, what was read out of it, and how much of that are real images; None: not compared."""

    inspection: Inspection
    match: Match | None

    @property
    def is_finding(self) -> bool:
        """Whether the model looks crafted, or more images were read than a guess reaches."""
        return bool(self.inspection.findings) or (self.match is not None and self.match.exceeds_guesses)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but pictures, fit for JSON."""
        read, facts = self.inspection, self.inspection.record.metadata
        return {
            "file": read.record.path.name,
            "hospital-id": facts.hospital_id,
            "model-version": facts.model_version,
            "model": facts.model.name,
            "examples": facts.examples,
            "mechanism": protection_of(read.record),
            "layers": list(read.layers),
            "note": read.note,
            "candidates": len(read.candidates),
            "in-range": read.in_range,
            "labels": None if read.labels is None else [facts.data.class_names[label] for label in read.labels],
            "guard": [str(finding) for finding in read.findings],
            "match": None if self.match is None else self.match.as_dict(),
            "finding": self.is_finding,
        }


def inspect_records(folder: Path, whose: Whose, pictures: Path | None, *, as_json: bool) -> None:
    """Print what can be read out of all updates in `folder`, and exit with 1 where there is a finding.

    Raises:
        ConfigurationError: a picture is asked for without images.
        DataError: a record or an image is damaged or does not fit.
    """
    records, world = read_records(folder), whose.load()
    if pictures is not None and world is None:
        raise ConfigurationError("Expected --images-from or --data with --pictures, found neither: name the images.")
    console = Console(stderr=True, quiet=as_json)
    readings = [_read(record, world) for record in track(records, "reading", console=console, transient=True)]
    matches = [reading.match for reading in readings if reading.match is not None]
    drawn = pictures is not None and _draw(pictures, readings, console)
    finding = any(reading.is_finding for reading in readings)
    if as_json:
        together = (
            []
            if not matches
            else [
                {
                    "threshold-db": threshold,
                    "hits": share.hits,
                    "count": share.count,
                    "low": share.low,
                    "high": share.high,
                }
                for threshold, share in read_in_any(matches)
            ]
        )
        content = {"finding": finding, "pictures": drawn, "read-in-any": together}
        typer.echo(json.dumps({**content, "records": [reading.as_dict() for reading in readings]}, indent=1))
    else:
        for line in describe(readings, with_images=world is not None):
            typer.echo(line)
    raise typer.Exit(1 if finding else 0)


def describe(readings: Sequence[Reading], *, with_images: bool) -> list[str]:
    """Return what was read, for people."""
    lines = [line for reading in readings for line in _describe_one(reading)]
    matches = [reading.match for reading in readings if reading.match is not None]
    if len(matches) > 1:
        told = ", ".join(f"{share.hits} above {threshold:g} dB" for threshold, share in read_in_any(matches))
        lines.append(f"In at least one of {len(matches)} updates, of {matches[0].images} images: {told}.")
    if not with_images:
        lines.append(_NO_IMAGES)
    lines.append("That nothing was read is no proof that nothing can be: these are passive read-outs, no bound.")
    return lines


def protection_of(record: RecordedUpdate) -> str:
    """Return the mechanism that the update was declared to leave under; "none" where it was not."""
    return str(record.metadata.declaration.get("mechanism", "none"))


def _read(record: RecordedUpdate, world: World | None) -> Reading:
    inspection = inspect_record(record)
    compare = world is not None and inspection.layers
    return Reading(inspection=inspection, match=match_images(inspection, world) if world and compare else None)


def _describe_one(reading: Reading) -> list[str]:
    read, facts = reading.inspection, reading.inspection.record.metadata
    lines = [
        f"{read.record.path.name}: {facts.hospital_id}, version {facts.model_version}, {facts.model.name}, "
        f"{facts.examples} images, mechanism {protection_of(read.record)}"
    ]
    if read.layers:
        lines.append(
            f"  {', '.join(read.layers)}: {len(read.candidates)} candidates, {read.in_range} with the pixels of an "
            "image (of one, or of several mixed)"
        )
    else:
        lines.append(f"  {read.note}")
    if read.labels is not None:
        names = ", ".join(facts.data.class_names[label] for label in read.labels)
        lines.append(f"  classes that must occur among the images: {names or 'none can be told'}")
    lines += [f"  guard: {finding}" for finding in read.findings] or ["  guard: nothing looks crafted"]
    return lines + ([] if reading.match is None else _describe_match(reading.match, facts.examples))


def _describe_match(match: Match, examples: int) -> list[str]:
    lines = [f"  {match.images} real images, {examples} of them trained on, each candidate given to one of them:"]
    if match.images < match.held:
        lines = [f"  {match.images} of {match.held} real images, drawn at random: more cannot be paired:"]
    for rate, null in zip(match.found.rates, match.nulls[STRICTEST].rates, strict=True):
        share, name = rate.recovered, "tau* " if rate.calibrated else ""
        lines.append(
            f"    above {name}{rate.threshold_db:.1f} dB: {share.hits} of {share.count} = {share.share or 0:.1%} "
            f"[{share.low:.1%}, {share.high:.1%}]; best foreign image {null.recovered.share or 0:.1%}, excess "
            f"{100 * rate.excess[STRICTEST]:+.1f} points; mean image {100 * rate.excess['mean']:+.1f}"
        )
    lines.append(f"  more than a guess: {'yes' if match.exceeds_guesses else 'no'}")
    return lines


def _draw(path: Path, readings: Sequence[Reading], console: Console) -> bool:
    """Write the picture, and say that it shows patients; False where nothing was compared."""
    rows = []
    for reading in readings:
        if reading.match is not None:
            told = " ".join(f"{value:.0f}" for value in reading.match.shown_db)
            name = reading.inspection.record.path.stem
            rows.append(Row(label=f"{name}: original", images=reading.match.real))
            rows.append(Row(label=f"{name}: read from the update; PSNR in dB {told}", images=reading.match.read))
    if not rows:
        return False
    write_pictures(path, rows, caption=_CAPTION)
    console.print(f"{path} shows patients' images; only you can read it.", style="yellow", markup=False)
    return True
