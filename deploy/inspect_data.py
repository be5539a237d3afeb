"""`aegis data describe`: what a configuration's data set holds and how it would be divided among hospitals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from deploy.exits import usage_errors
from deploy.settings import load_configuration
from federation.config import Configuration
from federation.datasets.image_set import Dataset, Task
from federation.datasets.sites import load_site
from federation.errors import AegisError

data = typer.Typer(no_args_is_help=True, help="Look at data sets.")


@data.callback()
def _group() -> None:
    """Look at data sets."""


@data.command("describe")
def describe_command(
    hospitals: Annotated[int, typer.Option(help="Number of simulated hospitals.", min=1)] = 6,
    assign: Annotated[list[str] | None, typer.Option("--set", help="table.key=value, repeatable.")] = None,
    app: Annotated[Path, typer.Option(help="Folder of the Flower app.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Show images per split and class of every simulated hospital."""
    console = Console()
    with usage_errors():
        configuration = load_configuration(app, None, assign or [])
    try:
        rows = [describe_site(configuration, site, hospitals) for site in range(hospitals)]
    except AegisError as error:
        Console(stderr=True).print(str(error), style="red", markup=False)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("hospital", "train", "validation", "test", *rows[0]["train_per_class"])
    for row in rows:
        counts = [str(count) for count in row["train_per_class"].values()]
        table.add_row(row["hospital"], *(str(row[key]) for key in ("train", "validation", "test")), *counts)
    console.print(table)


def describe_site(configuration: Configuration, site: int, sites: int) -> dict[str, Any]:
    """Return the images per split, and per class of the training split, of one simulated hospital."""
    dataset = load_site(configuration.data, site=site, sites=sites, seed=configuration.data_seed)
    return {
        "hospital": f"hospital-{site:03d}",
        "train": len(dataset.train),
        "validation": len(dataset.validation),
        "test": len(dataset.test),
        "train_per_class": dict(zip(dataset.info.class_names, _class_counts(dataset), strict=True)),
    }


def _class_counts(dataset: Dataset) -> list[int]:
    labels = dataset.train.labels
    if dataset.info.task is Task.MULTILABEL:
        return [int(count) for count in labels.sum(axis=0)]
    return [int(count) for count in np.bincount(labels, minlength=dataset.info.classes)]
