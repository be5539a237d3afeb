"""What every experiment has in common: its parts, cells and claims, and how it is run, resumed and written down."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console

from deploy.exits import usage_errors
from deploy.experiments.cells import Cell, CellStore, Result, run_cells
from deploy.experiments.claims import Claim, claims_as_json
from deploy.experiments.recorded import Making, digest_settings, recorded_cells
from federation.errors import AegisError, ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment.

    Attributes:
        slug: number and name, as its results page is called.
        parts: what can be measured alone.
        cells: from parts, data folder (empty: download) and source tree to cells.
        claims: from finished cells by name to claims.
        write: writes the results page from finished cells, their making, and the folder.
        restore: from a cell as the page's JSON has it to a result, where the page shortens cells.
    """

    slug: str
    parts: tuple[str, ...]
    cells: Callable[[Sequence[str], str, Path], list[Cell]]
    claims: Callable[[dict[str, Result]], list[Claim]]
    write: Callable[[dict[str, Result], dict[str, dict[str, str]], Path], None]
    restore: Callable[[Result], Result] = dict


def run_experiment(
    experiment: Experiment, *, part: list[str] | None, data_root: str, jobs: int, fresh: bool, as_json: bool
) -> None:
    """Compute the missing cells of `part` (None: all), then write the page from all that are finished.

    Cells that were finished elsewhere stay on the page, with who made them, as long as their settings are the same.

    Args:
        experiment: which.
        part: names of `experiment.parts`.
        data_root: folder with the data; empty to download.
        jobs: processes side by side.
        fresh: forget finished cells of all parts first, those on the page among them.
        as_json: print the claims as JSON and nothing else.
    """
    console, source = Console(stderr=True, quiet=as_json), Path.cwd()
    work = source / "runs" / "experiments" / experiment.slug
    with usage_errors():
        parts = part or list(experiment.parts)
        if unknown := set(parts) - set(experiment.parts):
            known = ", ".join(experiment.parts)
            raise ConfigurationError(f"Expected --part of {known}, found {', '.join(sorted(unknown))}.")
        if not (source / "pyproject.toml").is_file():
            raise ConfigurationError(f"Expected to run in the source tree, found no pyproject.toml in {source}.")
    if fresh and work.exists():
        shutil.rmtree(work)
    store = CellStore(work)
    try:
        run_cells(experiment.cells(parts, data_root, source), store, jobs=jobs, console=console)
    except AegisError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from None
    _report(experiment, store, data_root, source, console, fresh=fresh, as_json=as_json)


def data_folder(data: Path | None, subfolder: str) -> str:
    """Return `data`, or else `subfolder` of the folder that AEGIS_TEST_DATA names, or empty when that is not set."""
    if data is not None:
        return str(data.absolute())
    folder = os.environ.get("AEGIS_TEST_DATA")
    return str((Path(folder) / subfolder).absolute()) if folder else ""


def _report(
    experiment: Experiment,
    store: CellStore,
    data_root: str,
    source: Path,
    console: Console,
    *,
    fresh: bool,
    as_json: bool,
) -> None:
    every, folder = experiment.cells(experiment.parts, data_root, source), source / "docs" / "results"
    kept = {} if fresh else recorded_cells(folder / f"{experiment.slug}.json", every, experiment.restore)
    results: dict[str, Result] = {}
    made: dict[str, Making] = {}
    for cell in every:
        if (found := store.find(cell)) is not None:
            results[cell.name] = found
            made[cell.name] = {**store.made(cell), "settings": digest_settings(cell.settings)}
        elif cell.name in kept:
            results[cell.name], made[cell.name] = kept[cell.name]
    experiment.write(results, made, folder)
    claims = experiment.claims(results)
    if as_json:
        typer.echo(json.dumps(claims_as_json(claims, made), indent=1))
    for item in claims:
        console.print(f"{'met ' if item.met else 'open'}  {item.id}: {item.value} (target {item.target})", markup=False)
