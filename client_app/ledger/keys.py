"""The hospital's secret beside its anchor: 32 random bytes that seal rows and anchor, made once and never shown."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from client_app.ledger.faults import explained
from federation.errors import LedgerError

KEY_BYTES = 32


def make_folder(folder: Path) -> None:
    """Make `folder` with mode 0700 when it is missing, and what lies above it, durably.

    Raises:
        LedgerError: it cannot be made.
    """
    with explained(folder):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in missing:
            sync_folder(path.parent)


def make_key(path: Path) -> bytes:
    """Write a new key to `path` with mode 0600, durably and whole or not at all, and return it.

    Raises:
        LedgerError: it cannot be written.
    """
    key = secrets.token_bytes(KEY_BYTES)
    write_secret(path, key)
    return key


def read_key(
    path: Path, *, whose: str = "the ledger's key", remedy: str = "restore the newest backup of the key folder"
) -> bytes:
    """Return the key at `path`.

    Args:
        path: where `make_key` wrote it.
        whose: what it is called in an error.
        remedy: what to do when it is missing or damaged.

    Raises:
        LedgerError: it is missing, of another length, or readable by others.
    """
    with explained(path):
        if not path.is_file():
            raise LedgerError(f"{path}: expected {whose}, found none: {remedy}. Nothing was released.")
        mode, key = path.stat().st_mode & 0o777, path.read_bytes()
    if len(key) != KEY_BYTES:
        raise LedgerError(
            f"{path}: expected a key of {KEY_BYTES} bytes, found {len(key)}: {remedy}. Nothing was released."
        )
    if mode & 0o077:
        raise LedgerError(f"{path}: expected nobody else to have access, found mode {mode:04o}: run chmod 600 on it.")
    return key


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file at `path` with mode 0600, durably and whole or not at all.

    Raises:
        LedgerError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.new")
    with explained(path):
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in `folder` to the disk.

    Raises:
        OSError: the disk refused.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
