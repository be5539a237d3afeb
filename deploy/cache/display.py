"""What a person sees of a cache: progress, a summary in sentences, a contact sheet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from aegis_cache.build import BuildProgress
from aegis_cache.contact_sheet import write_contact_sheet
from aegis_cache.store.cache import Cache
from aegis_cache.store.provenance import Source
from deploy.cache.permitted import PermittedImages
from federation.datasets.image_set import ImageSet

_MEANING = {
    Source.PUBLIC: "No private image had a part in it.",
    Source.DP: "Private images had a part through a differentially private mechanism only, which the ledger must hold.",
    Source.PRIVATE_FILTERED: "Private images decided what was kept: no epsilon may be claimed for updates masked with "
    "it.",
    Source.PRIVATE_ADAPTED: "The generator learned from private images: no epsilon may be claimed for updates masked "
    "with it.",
}


@contextmanager
def show_training(console: Console) -> Iterator[Callable[[float, str], None]]:
    """Yield a function that draws how much of a training is done; nothing is drawn until it is called."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("training", total=1.0, visible=False)
        yield lambda done, state: bar.update(task, completed=done, description=state, visible=True)


@contextmanager
def show_build(console: Console, images: int) -> Iterator[Callable[[BuildProgress], None]]:
    """Yield a function that draws how many images are accepted, and the time left after the first batch."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("first batch", total=images)

        def draw(at: BuildProgress) -> None:
            left = "" if at.remaining_s is None else f", {_duration(at.remaining_s)} left"
            rate = at.accepted / max(at.candidates, 1)
            bar.update(task, completed=at.accepted, description=f"{rate:.0%} of {at.candidates} accepted{left}")

        yield draw


def describe_cache(opened: Cache, console: Console) -> None:
    """Print what the cache is."""
    manifest = opened.manifest
    purpose, acceptance = manifest.purpose, manifest.acceptance
    per_class = acceptance.get("per-class", {})
    table = Table("class", "images", "drawn", "copies refused", "rejected", box=box.SIMPLE)
    for name, count in zip(purpose.class_names, manifest.label_histogram, strict=True):
        row = per_class.get(name, {})
        table.add_row(escape(name), str(count), *(str(row.get(key, "-")) for key in ("drawn", "copies", "rejected")))
    console.print(table)
    lines = [
        f"{len(opened)} images for {purpose.hospital_id}, {purpose.data_set} ({purpose.channels} x {purpose.height} x "
        f"{purpose.width}), made {manifest.created} by {manifest.generator.kind}: {manifest.generator.name}",
        f"provenance: {manifest.provenance.source.value}. {_MEANING[manifest.provenance.source]}",
        *(f"- {use}" for use in manifest.provenance.uses),
    ]
    if coverage := acceptance.get("coverage"):
        lines.append(
            f"coverage: brightness KS {coverage['brightness-ks']:.3f}, projections {coverage['projection-ks']:.3f}; "
            f"brightness bins overlap {coverage['occupancy-overlap']:.2f} of what real images would; "
            f"{coverage['protected']:.0%} of the real images share one with a synthetic image"
        )
    lines.append("Masking is an empirical defence, no differential privacy.")
    for line in lines:
        console.print(line, markup=False, highlight=False)


def draw_sheet(path: Path, opened: Cache, permitted: PermittedImages) -> None:
    """Write a picture of the permitted real images beside those of the cache.

    Raises:
        ConfigurationError: the policy lets no image be used.
    """
    real, _ = permitted.require("to show real images beside synthetic ones")
    synthetic = ImageSet(images=opened.take(np.arange(len(opened))), labels=np.array(opened.labels))
    write_contact_sheet(path, real, synthetic, classes=permitted.info.classes)


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
