"""`aegis attack table`: finished results of several folders in one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from deploy.attack.rows import LeakageRow, is_leakage, rows_of
from deploy.attack.tables import as_json_table, as_markdown, write_tables
from federation.errors import DataError


def merge(folders: Sequence[Path], out: Path | None, *, as_json: bool) -> None:
    """Print the table of all results in `folders`, and write it into `out` where that is given.

    Raises:
        DataError: there are none, or a file is damaged.
    """
    rows = [row for folder in folders for row in read_rows(folder)]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_tables(rows, out)
    typer.echo(json.dumps(as_json_table(rows), indent=1) if as_json else as_markdown(rows), nl=as_json)


def read_rows(folder: Path) -> list[LeakageRow]:
    """Return the rows of all finished attacks in `folder`; cells of other measurements are passed over.

    Raises:
        DataError: there are none, or a file is damaged.
    """
    if not folder.is_dir():
        raise DataError(f"Expected a folder of finished results, found none at {folder}: {_ORIGIN}.")
    rows = [row for path in sorted(folder.glob("*.json")) for row in _read_cell(path)]
    if not rows:
        raise DataError(f"Expected finished results in {folder}, found none: {_ORIGIN}.")
    return rows


_ORIGIN = "`aegis attack run` keeps them in runs/attacks/NAME"


def _read_cell(path: Path) -> list[LeakageRow]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return rows_of(stored["settings"], stored["result"]) if is_leakage(stored) else []
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: expected a finished result as JSON, found {type(error).__name__}: {error}: delete it, run again."
        ) from None
