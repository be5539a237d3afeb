"""`aegis attack run` without records: attacks on simulated hospitals, one finished cell an attack, resumed by default.

Cells have the form of those of the experiment on leakage, so that `aegis attack table` reads both.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from aegis_cache.store.cache import read_manifest
from attacks.attack import Attack
from attacks.evaluation.evaluate import Findings, evaluate
from attacks.linear_leakage.robbing_the_fed import RobbingTheFed
from attacks.registry import DEFAULT_FOLDER, find_attack
from attacks.world import World
from deploy.attack.images import load_world
from deploy.attack.pictures import Row, write_pictures
from deploy.attack.request import SimulationRequest
from deploy.attack.rows import LeakageRow, rows_of
from deploy.attack.tables import as_json_table, describe_headline, write_tables
from deploy.experiments.cells import Cell, CellStore, Result, describe_making
from deploy.experiments.leakage_grid import leakage_cell, make_trial
from federation.durable import write_durably

_DELTA = 1e-5
_CAPTION = "TEST DATA, read in a simulated attack. Of a hospital's own images, it shows patients."


def simulate_attacks(request: SimulationRequest, *, fresh: bool, out: Path | None, as_json: bool) -> None:
    """Run the attacks of `request` that are not finished, and print what all of them read.

    Args:
        request: checked.
        fresh: whether to forget the finished cells of this name.
        out: folder for tables, plot and pictures; None for none.
        as_json: print JSON and nothing else.

    Raises:
        ConfigurationError: the data set needs another root.
        DataError: images are missing, damaged or too few.
        CacheError: the cache of synthetic images does not fit.
    """
    work = DEFAULT_FOLDER / request.name
    if fresh and work.exists():
        shutil.rmtree(work)
    store, console = CellStore(work), Console(stderr=True, quiet=as_json)
    if request.doubt is not None:
        console.print(request.doubt, style="yellow", markup=False)
    cells = [make_cell(request, name) for name in request.attacks]
    results = run_attacks(request, cells, store, console, pictures=out is not None)
    rows = [row for cell in cells for row in rows_of(cell.settings, results[cell.name])]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_tables(rows, out)
        missing = _draw(rows, cells, store, out)
        console.print(f"tables, plot and pictures: {out}", style="cyan", markup=False)
        if missing:
            told = f"no pictures of {missing} attacks that were finished without --out: --fresh runs them again"
            console.print(told, style="yellow", markup=False)
    if as_json:
        typer.echo(json.dumps({"cells": str(work), "doubt": request.doubt, **as_json_table(rows)}, indent=1))
    else:
        typer.echo("\n".join([*describe_headline(rows), f"finished cells: {work}"]))


def make_cell(request: SimulationRequest, name: str) -> Cell:
    """Return the cell of one attack; its name tells the settings apart, so that none overwrites another's."""
    attack = find_attack(name, DEFAULT_FOLDER)
    source = "real"
    if request.synthetic is not None:
        shards = "".join(shard.sha256 for shard in read_manifest(request.synthetic).shards)
        source = f"cache-{hashlib.sha256(shards.encode()).hexdigest()[:10]}"
    base = leakage_cell(
        name,
        request.data,
        "" if request.data_root is None else str(request.data_root.absolute()),
        [name],
        source=source,
        masking=request.masking,
        size=request.size,
        mode=request.mode,
        optimizer=request.optimizer,
        epochs=request.epochs,
        mechanism=request.mechanism,
        epsilon=request.epsilon,
        baselines=list(request.baselines),
        clients=getattr(attack, "clients", 1),
        renewed=getattr(attack, "together", "fresh") == "difference",
        batches=request.batches,
        seeds=list(range(request.seeds)),
    )
    told = hashlib.sha256(json.dumps(base.settings, sort_keys=True).encode()).hexdigest()[:10]
    return replace(base, name=f"{name}-{told}")


def run_attacks(
    request: SimulationRequest, cells: Sequence[Cell], store: CellStore, console: Console, *, pictures: bool
) -> dict[str, Result]:
    """Return the results of `cells` by name, computing those that are missing, one after the other in this process."""
    results = {cell.name: found for cell in cells if (found := store.find(cell)) is not None}
    missing = [cell for cell in cells if cell.name not in results]
    if not missing:
        return results
    torch.set_num_threads(1)
    world = load_world(request.data, request.data_root, request.synthetic)
    made, steps = describe_making(), request.batches * request.seeds
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("attacks", total=steps * len(cells), completed=steps * len(results))
        for cell in missing:

            def tell(text: str) -> None:
                bar.update(task, advance=1, description=text)

            results[cell.name] = measure(cell, store, world, tell, pictures=pictures)
            store.keep(cell, results[cell.name], made)
    return results


def measure(cell: Cell, store: CellStore, world: World, progress: Callable[[str], None], *, pictures: bool) -> Result:
    """Return what the attack of `cell` finds; `pictures` keeps some images beside it, for their owner only."""
    settings = cell.settings
    (name,) = settings["attacks"]
    attack = find_attack(name, store.folder / "trained" / settings["data"])
    found = evaluate(attack, world, make_trial(settings), capacity=_bins(attack, settings), progress=progress)
    if pictures:
        _keep_pictures(store, cell, found)
    return {name: found.as_dict()}


def _bins(attack: Attack, settings: dict[str, Any]) -> int | None:
    """Return k where counting says how many images are read verbatim, for bins without noise; else None."""
    if not isinstance(attack, RobbingTheFed) or attack.noise:
        return None
    plain = not settings["baselines"] and settings["mechanism"] == "none" and settings["mode"] == "gradient"
    return attack.capacity if plain and settings["clients"] == 1 else None


def _keep_pictures(store: CellStore, cell: Cell, found: Findings) -> None:
    folder, content = store.folder / "pictures", io.BytesIO()
    folder.mkdir(exist_ok=True, mode=0o700)
    np.savez(content, real=found.real, read=found.read)
    write_durably(folder / f"{cell.name}.npz", content.getvalue(), mode=0o600)


def _draw(rows: Sequence[LeakageRow], cells: Sequence[Cell], store: CellStore, out: Path) -> int:
    """Draw the plot and the pictures, and return how many cells have none, because they were not asked for."""
    from deploy.attack.plots import draw_recovery

    draw_recovery(rows, out / "recovery.svg")
    shown: list[Row] = []
    for cell in cells:
        path = store.folder / "pictures" / f"{cell.name}.npz"
        if path.is_file():
            with np.load(path) as stored:
                (name,) = cell.settings["attacks"]
                shown += [
                    Row(label=f"{name}: original", images=stored["real"]),
                    Row(label=f"{name}: read", images=stored["read"]),
                ]
    if shown:
        write_pictures(out / "pictures.png", shown, caption=_CAPTION)
    return len(cells) - len(shown) // 2
