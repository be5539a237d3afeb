"""Resumable experiments: a cell is one measurement with its settings; finished cells are read, not computed again."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import platform
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from federation.durable import write_durably

Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measurement.

    Attributes:
        name: unique within the experiment, usable as a file name.
        compute: a module-level function from (settings, work folder) to a JSON-able result.
        settings: everything the result depends on; a stored result with other settings does not count.
        alone: whether nothing else may run beside it, because it measures time.
    """

    name: str
    compute: Callable[[dict[str, Any], Path], Result]
    settings: dict[str, Any]
    alone: bool = False


class CellStore:
    """Finished cells of one experiment below one folder."""

    def __init__(self, folder: Path) -> None:
        """Keep cells in `folder`, which is created."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, cell: Cell) -> Result | None:
        """Return the stored result of `cell`, if it was computed with the same settings."""
        path = self.folder / f"{cell.name}.json"
        if not path.is_file():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        return stored["result"] if stored["settings"] == json.loads(json.dumps(cell.settings)) else None

    def keep(self, cell: Cell, result: Result, made: dict[str, str]) -> None:
        """Store the result of `cell` durably, with the day, machine and code that made it."""
        content = {"name": cell.name, "settings": cell.settings, "made": made, "result": result}
        write_durably(self.folder / f"{cell.name}.json", json.dumps(content, indent=1).encode())

    def made(self, cell: Cell) -> dict[str, str]:
        """Return when, where and by which code the stored result of `cell` was made."""
        path = self.folder / f"{cell.name}.json"
        day = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).date().isoformat()
        unknown = {"date": day, "machine": describe_machine(), "revision": "not recorded"}
        recorded: dict[str, str] = json.loads(path.read_text(encoding="utf-8")).get("made", unknown)
        return recorded


def describe_making() -> dict[str, str]:
    """Return today's date, this machine, and the revision of the source tree with a mark when it was changed."""
    git = shutil.which("git")
    revision = "not recorded"
    if git:
        described = subprocess.run(
            [git, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
        )
        revision = described.stdout.strip() or revision
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": day, "machine": describe_machine(), "revision": revision}


def describe_machine() -> str:
    """Return processor, cores and memory of this machine in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, shared"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def run_cells(cells: Sequence[Cell], store: CellStore, *, jobs: int, console: Console) -> dict[str, Result]:
    """Return the results of all `cells`, computing those that are missing.

    Cells run in `jobs` processes with one thread each; cells that measure time run one by one afterwards.

    Args:
        cells: what to measure.
        store: where finished cells lie.
        jobs: processes side by side.
        console: where the progress bar is drawn.
    """
    results = {cell.name: found for cell in cells if (found := store.find(cell)) is not None}
    made = describe_making()
    missing = [cell for cell in cells if cell.name not in results]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("cells", total=len(cells), completed=len(results))

        def done(cell: Cell, result: Result) -> None:
            store.keep(cell, result, made)
            results[cell.name] = result
            bar.update(task, advance=1, description=cell.name)

        _run_side_by_side([cell for cell in missing if not cell.alone], store.folder, jobs, done)
        for cell in missing:
            if cell.alone:
                done(cell, cell.compute(cell.settings, store.folder))
    return results


def _run_side_by_side(cells: Sequence[Cell], folder: Path, jobs: int, done: Callable[[Cell, Result], None]) -> None:
    if not cells:
        return
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context, initializer=_end_with_parent) as pool:
        futures: dict[Future[Result], Cell] = {pool.submit(cell.compute, cell.settings, folder): cell for cell in cells}
        failed: list[BaseException] = []
        for future in as_completed(futures):
            if (error := future.exception()) is not None:
                failed.append(error)
            else:
                done(futures[future], future.result())
        if failed:
            # Whatever else was computed is kept by now.
            raise failed[0]


def _end_with_parent() -> None:
    """Let this process end when its parent does: a killed experiment must not go on computing what nobody keeps."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
