"""Experiment cells: finished ones are read, changed ones computed again, a crash keeps what was done."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from deploy.experiments.cells import Cell, CellStore, Result, run_cells
from tests.e2e.waiting import wait_until

QUIET = Console(quiet=True)


def count(settings: dict[str, Any], folder: Path) -> Result:
    """Note every computation in a file and return the settings' number."""
    with (folder / "computed").open("a") as file:
        file.write(f"{settings['number']}\n")
    return {"number": settings["number"]}


def fail(settings: dict[str, Any], folder: Path) -> Result:
    """Fail."""
    raise ValueError(str(settings))


def wait_long(settings: dict[str, Any], folder: Path) -> Result:
    """Note this process and compute for a minute, unless it is ended."""
    (folder / "worker").write_text(str(os.getpid()))
    end = time.monotonic() + settings["number"]
    while time.monotonic() < end:
        sum(range(1000))
    return {}


def run_long(folder: Path) -> None:
    """Run one long cell."""
    run_cells([cell(60, compute=wait_long)], CellStore(folder), jobs=1, console=QUIET)


def cell(number: int, **changes: Any) -> Cell:
    return Cell(**{"name": f"cell-{number}", "compute": count, "settings": {"number": number}, **changes})


def computed(folder: Path) -> list[str]:
    return sorted((folder / "computed").read_text().split())


def test_finished_cells_are_not_computed_again(tmp_path: Path) -> None:
    store = CellStore(tmp_path)

    for _ in range(2):
        results = run_cells([cell(1), cell(2, alone=True)], store, jobs=2, console=QUIET)

    assert results == {"cell-1": {"number": 1}, "cell-2": {"number": 2}}
    assert computed(tmp_path) == ["1", "2"]


def test_finished_cell_says_when_where_and_by_which_code_it_was_made(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    run_cells([cell(1, alone=True)], store, jobs=1, console=QUIET)

    made = store.made(cell(1, alone=True))

    assert set(made) == {"date", "machine", "revision"}
    assert all(made.values())


def test_cell_with_other_settings_is_computed_again(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    run_cells([cell(1, alone=True)], store, jobs=1, console=QUIET)

    results = run_cells([cell(1, alone=True, settings={"number": 9})], store, jobs=1, console=QUIET)

    assert results["cell-1"] == {"number": 9}


def test_failure_of_a_cell_side_by_side_keeps_all_others(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    cells = [cell(1, compute=fail), cell(2), cell(3)]

    with pytest.raises(ValueError, match="1"):
        run_cells(cells, store, jobs=1, console=QUIET)

    assert [store.find(one) for one in cells] == [None, {"number": 2}, {"number": 3}]


def test_failure_keeps_the_cells_that_were_done(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    cells = [cell(1, alone=True), cell(2, alone=True, compute=fail), cell(3, alone=True)]

    with pytest.raises(ValueError, match="2"):
        run_cells(cells, store, jobs=1, console=QUIET)

    assert store.find(cells[0]) == {"number": 1}
    assert store.find(cells[2]) is None


def test_worker_ends_with_an_experiment_that_is_killed(tmp_path: Path) -> None:
    experiment = multiprocessing.get_context("spawn").Process(target=run_long, args=(tmp_path,))
    experiment.start()
    noted = tmp_path / "worker"
    wait_until(lambda: noted.is_file() and noted.read_text() != "", "a worker")
    worker = psutil.Process(int(noted.read_text()))

    experiment.kill()
    experiment.join()

    worker.wait(timeout=30)
