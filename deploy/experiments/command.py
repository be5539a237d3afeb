"""`aegis experiment`: runs an experiment's cells, or reads the finished ones, and writes its results page."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deploy.experiments.cells import CellStore, run_cells
from deploy.experiments.claims import claims_as_json
from deploy.experiments.fedavg import PARTS, fedavg_cells, fedavg_claims, write_fedavg_results
from deploy.outcome import usage_errors
from federation.errors import AegisError, ConfigurationError

experiment = typer.Typer(no_args_is_help=True, help="Measure what docs/results claims.")


@experiment.callback()
def _group() -> None:
    """Measure what docs/results claims."""


@experiment.command("fedavg")
def fedavg_command(
    part: Annotated[list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(PARTS)}.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the MedMNIST files; else they are downloaded.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes side by side, one thread each.", min=1)] = os.cpu_count() or 1,
    fresh: Annotated[bool, typer.Option(help="Forget finished cells.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the claims as JSON, nothing else.")] = False,
) -> None:
    """Measure FedAvg: quality, speed and equality of both engines. Run it in the source tree; it resumes."""
    console = Console(stderr=True, quiet=as_json)
    source = Path.cwd()
    work = source / "runs" / "experiments" / "01-fedavg"
    with usage_errors():
        parts = part or list(PARTS)
        if unknown := set(parts) - set(PARTS):
            raise ConfigurationError(f"Expected --part of {', '.join(PARTS)}, found {', '.join(sorted(unknown))}.")
        if not (source / "pyproject.toml").is_file():
            raise ConfigurationError(f"Expected to run in the source tree, found no pyproject.toml in {source}.")
    if fresh and work.exists():
        shutil.rmtree(work)
    root = str(data.absolute()) if data else default_data_root()
    store = CellStore(work)
    try:
        run_cells(fedavg_cells(parts, data_root=root, source=source), store, jobs=jobs, console=console)
    except AegisError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from None
    every = fedavg_cells(PARTS, data_root=root, source=source)
    results = {cell.name: found for cell in every if (found := store.find(cell)) is not None}
    made = {cell.name: store.made(cell) for cell in every if cell.name in results}
    write_fedavg_results(results, made, source / "docs" / "results")
    claims = fedavg_claims(results)
    if as_json:
        typer.echo(json.dumps(claims_as_json(claims, made), indent=1))
    for item in claims:
        console.print(f"{'met ' if item.met else 'open'}  {item.id}: {item.value} (target {item.target})", markup=False)


def default_data_root() -> str:
    """Return the MedMNIST folder below AEGIS_TEST_DATA, or empty when that is not set."""
    folder = os.environ.get("AEGIS_TEST_DATA")
    return str((Path(folder) / "medmnist").absolute()) if folder else ""
