"""Looks at a ledger without touching it: no lock, nothing created, whether or not a client is running."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from client_app.ledger.anchor import read_position
from client_app.ledger.faults import explained
from client_app.ledger.files import LedgerPaths, ledger_path
from client_app.ledger.keys import read_key
from client_app.ledger.row_file import RowFile
from client_app.ledger.rows import Row
from client_app.ledger.verification import Audit, audit_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A ledger as it was at one moment.

    Attributes:
        rows: all of them.
        audit: what is wrong with them and what they add up to.
        anchored: whether key and anchor were at hand; without them only careless changes show.
    """

    rows: tuple[Row, ...]
    audit: Audit
    anchored: bool


def inspect_ledger(folder: Path, hospital_id: str, *, key_folder: Path | None) -> Inspection:
    """Return the rows of the hospital's ledger and what is wrong with them.

    Args:
        folder: the ledger's volume.
        hospital_id: whose ledger.
        key_folder: holds key and anchor; None to check the chain alone.

    Raises:
        LedgerError: a file is missing or cannot be read at all.
    """
    path = ledger_path(folder, hospital_id)
    if key_folder is None:
        rows = _read_rows(path)
        return Inspection(rows=rows, audit=audit_rows(rows, hospital_id=hospital_id), anchored=False)
    paths = LedgerPaths.of(folder, hospital_id, key_folder)
    key = read_key(paths.key)
    before = read_position(paths.anchor, key=key, hospital_id=hospital_id)
    rows = _read_rows(path)
    if read_position(paths.anchor, key=key, hospital_id=hospital_id) != before:
        # A client is writing: look at the ledger as it was when its anchor was read.
        rows = rows[: before.seq + 1]
    audit = audit_rows(rows, hospital_id=hospital_id, key=key, anchor=before)
    return Inspection(rows=rows, audit=audit, anchored=True)


def _read_rows(path: Path) -> tuple[Row, ...]:
    with _opened(path) as file:
        return tuple(file.read())


@contextmanager
def _opened(path: Path) -> Iterator[RowFile]:
    """Open the ledger where a client keeps its shared memory, by SQLite's own rules; else a copy of it.

    A ledger that nobody has open lacks that file, and SQLite would create it.
    """
    if path.with_name(f"{path.name}-shm").exists():
        with closing(RowFile(path, writable=False)) as file:
            yield file
        return
    with tempfile.TemporaryDirectory(prefix="aegis-ledger-") as folder:
        copy = Path(folder) / path.name
        with explained(path):
            for name in (path.name, f"{path.name}-wal"):
                if path.with_name(name).exists():
                    shutil.copyfile(path.with_name(name), copy.with_name(name))
        with closing(RowFile(copy if copy.exists() else path, writable=False)) as file:
            yield file
