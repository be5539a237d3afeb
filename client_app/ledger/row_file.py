"""The SQLite file that holds the rows: made whole or not at all, appended to durably, never changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from client_app.ledger.faults import explained
from client_app.ledger.keys import sync_folder
from client_app.ledger.rows import SCHEMA_VERSION, Row
from federation.errors import LedgerError

_APPLICATION_ID = 0x41454749  # "AEGI", so that `file` and we tell a ledger from any other database.
_BUSY_S = 5.0
_TABLE = """CREATE TABLE rows (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  time TEXT NOT NULL,
  body TEXT NOT NULL,
  digest BLOB NOT NULL,
  seal BLOB NOT NULL
) STRICT"""
_NO_UPDATE = """CREATE TRIGGER rows_are_not_updated BEFORE UPDATE ON rows
BEGIN SELECT RAISE(ABORT, 'a ledger row is never updated'); END"""
_NO_DELETE = """CREATE TRIGGER rows_are_not_deleted BEFORE DELETE ON rows
BEGIN SELECT RAISE(ABORT, 'a ledger row is never deleted'); END"""
_IN_ORDER = """CREATE TRIGGER rows_are_appended BEFORE INSERT ON rows
WHEN NEW.seq IS NOT (SELECT ifnull(max(seq), 0) + 1 FROM rows)
BEGIN SELECT RAISE(ABORT, 'a ledger row is appended after the last one'); END"""
_SCHEMA = (_TABLE, _NO_UPDATE, _NO_DELETE, _IN_ORDER)
_INSERT = "INSERT INTO rows (seq, kind, time, body, digest, seal) VALUES (?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT seq, kind, time, body, digest, seal FROM rows ORDER BY seq"


def create_row_file(path: Path, genesis: Row) -> None:
    """Make the ledger file at `path` with its first row; after a crash it is there as a whole or not at all.

    Raises:
        LedgerError: the volume refused.
    """
    temporary = path.with_name(f"{path.name}.new")
    with explained(path):
        for leftover in (temporary, temporary.with_name(f"{temporary.name}-journal")):
            leftover.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with closing(sqlite3.connect(temporary, isolation_level=None)) as database:
                _fill(database, genesis)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
        sync_folder(path.parent)


def _fill(database: sqlite3.Connection, genesis: Row) -> None:
    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for statement in _SCHEMA:
        database.execute(statement)
    database.execute(_INSERT, _values(genesis))
    database.execute("PRAGMA journal_mode = WAL")


class RowFile:
    """An open ledger file.

    Guarantee: once `append` has returned, the row survives a crash of process or machine (WAL, synchronous = FULL);
        after an `append` that raised, the row is absent, or present as a whole.
    Not guaranteed: a disk that loses what it acknowledged, and a network file system without POSIX locks.
    """

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        """Open the ledger at `path` and check that it is one; nothing is created.

        Raises:
            LedgerError: it is missing, empty, no ledger, of another schema, damaged, or cannot be written.
        """
        self._path = path
        with explained(path):
            _require_database(path)
            address = f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
            self._database = sqlite3.connect(
                address, uri=True, isolation_level=None, timeout=_BUSY_S, check_same_thread=False
            )
            try:
                self._check(writable=writable)
            except (LedgerError, sqlite3.Error):
                self._database.close()
                raise

    def append(self, row: Row) -> None:
        """Write `row` durably as the last one.

        Raises:
            LedgerError: the volume refused, or another program wrote to the file; only closing the file, which undoes
                what was begun, tells whether the row is there.
        """
        with explained(self._path):
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(_INSERT, _values(row))
            self._database.execute("COMMIT")

    def read(self) -> Iterator[Row]:
        """Return all rows in order, one by one.

        Raises:
            LedgerError: the file is damaged.
        """
        with explained(self._path):
            for seq, kind, time, body, digest, seal in self._database.execute(_SELECT):
                yield Row(seq=seq, kind=kind, time=time, body=body, digest=digest, seal=seal)

    def close(self) -> None:
        """Bring the write-ahead log home and close; a second call does nothing.

        Raises:
            LedgerError: the volume refused; every row is durable all the same.
        """
        with explained(self._path):
            self._database.close()

    def _check(self, *, writable: bool) -> None:
        (application,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID:
            raise LedgerError(f"{self._path}: expected a privacy ledger, found another kind of database.")
        if version != SCHEMA_VERSION:
            raise LedgerError(
                f"{self._path}: expected schema version {SCHEMA_VERSION}, found {version}: use the client that wrote "
                "it. Nothing was released."
            )
        found = {sql for (sql,) in self._database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        if found != set(_SCHEMA):
            raise LedgerError(f"{self._path}: expected the ledger's table and triggers, found them changed.")
        if not writable:
            return
        self._database.execute("PRAGMA synchronous = FULL")
        (mode,) = self._database.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise LedgerError(f"{self._path}: expected a volume with shared memory for WAL, found journal mode {mode}.")
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("ROLLBACK")


def _values(row: Row) -> tuple[int, str, str, str, bytes, bytes]:
    return row.seq, row.kind, row.time, row.body, row.digest, row.seal


def _require_database(path: Path) -> None:
    """Refuse what SQLite would not, without opening the file: closing it again would lift SQLite's own locks."""
    if not path.is_file():
        raise LedgerError(f"{path}: expected a privacy ledger, found no file.")
    if path.stat().st_size == 0:
        raise LedgerError(
            f"{path}: expected a privacy ledger, found an empty file: keep it and restore the newest backup of the "
            "volume. Nothing was released."
        )
