"""Where a hospital's ledger, key, anchor and lock lie, and what it means when only some of them are there."""

from __future__ import annotations

import logging
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from client_app.ledger.anchor import Anchor, Position
from client_app.ledger.keys import make_folder, make_key, read_key
from client_app.ledger.row_file import RowFile, create_row_file
from client_app.ledger.rows import SCHEMA_VERSION, START, Kind, make_row
from federation.errors import LedgerError
from federation.identifiers import IDENTIFIER_RULE, is_identifier

_LOGGER = logging.getLogger("aegis.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPaths:
    """The files of one hospital's ledger.

    Attributes:
        rows: the SQLite file, on a volume of its own.
        lock: beside it.
        key: in the key folder, on another volume.
        anchor: beside the key.
    """

    rows: Path
    lock: Path
    key: Path
    anchor: Path

    @classmethod
    def of(cls, folder: Path, hospital_id: str, key_folder: Path) -> LedgerPaths:
        """Return the paths for `hospital_id`.

        Raises:
            LedgerError: the id is no file name, or both folders are the same, where one backup would hold both.
        """
        if not is_identifier(hospital_id):
            raise LedgerError(f"Expected hospital_id={hospital_id!r} to be {IDENTIFIER_RULE}.")
        if folder.resolve() == key_folder.resolve():
            raise LedgerError(
                f"Expected the key folder apart from the ledger's, found {folder} for both: name another one, best on "
                "another volume, so that one backup never holds both."
            )
        return cls(
            rows=ledger_path(folder, hospital_id),
            lock=folder / f"{hospital_id}.lock",
            key=key_folder / f"{hospital_id}.key",
            anchor=key_folder / f"{hospital_id}.anchor",
        )


def ledger_path(folder: Path, hospital_id: str) -> Path:
    """Return where the rows of `hospital_id` lie below the ledger's `folder`."""
    return folder / f"{hospital_id}.ledger"


def open_files(paths: LedgerPaths, hospital_id: str) -> tuple[bytes, Anchor, RowFile]:
    """Return key, anchor and rows of the hospital, made now when there was never a ledger.

    They are made in the order key, anchor at row 0, ledger: wherever that is interrupted, the next call goes on, and a
    ledger or an anchor that went missing later is never mistaken for a beginning.

    Raises:
        LedgerError: one of them is missing, damaged or foreign, or a volume refused.
    """
    if paths.rows.exists() and not paths.anchor.exists():
        raise LedgerError(
            f"{paths.anchor}: expected the anchor of the ledger {paths.rows}, found none: mount the volume of the key "
            "folder, or restore its newest backup. Nothing was released."
        )
    if not paths.rows.exists() and not paths.anchor.exists():
        make_folder(paths.key.parent)
        key = read_key(paths.key) if paths.key.exists() else make_key(paths.key)
        Anchor.create(paths.anchor, key=key, hospital_id=hospital_id, ledger_id=secrets.token_bytes(16)).close()
    key = read_key(paths.key)
    with ExitStack() as undo:
        anchor = Anchor(paths.anchor, key=key, hospital_id=hospital_id)
        undo.callback(anchor.close)
        if not paths.rows.exists():
            _begin(paths.rows, anchor.position, hospital_id, key)
        rows = RowFile(paths.rows)
        undo.pop_all()
    return key, anchor, rows


def _begin(path: Path, position: Position, hospital_id: str, key: bytes) -> None:
    if position.seq:
        raise LedgerError(
            f"{path}: expected the ledger with the {position.seq} rows that its anchor has seen, found no file: mount "
            "its volume, or restore the newest backup. What was spent is not forgotten, so nothing was released."
        )
    content = {"schema": SCHEMA_VERSION, "ledger": position.ledger_id.hex(), "hospital": hospital_id}
    create_row_file(path, make_row(START, seq=1, kind=Kind.GENESIS, content=content, key=key))
    _LOGGER.info("A new privacy ledger begins for hospital %s.", hospital_id)
