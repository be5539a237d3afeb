"""What the file system or SQLite refused, in words: which file, what was expected, what to do."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from federation.errors import LedgerError

_FULL = "room on its volume, found it full: free some and start again"
_READ_ONLY = "a volume that can be written, found it read-only: mount it for writing"
_FAILING = "it to work, found an error of the file system: look at its volume and at the room on it"
_DENIED = "permission to read and write it, found none: give the file and its folder to the user that runs the client"
_DAMAGED = "an intact ledger, found it damaged: keep this file and restore the newest backup of the volume"
_BUSY = "it to be free, found another program writing to it: end that program"
_BY_NUMBER = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
}
_BY_NAME = {
    "SQLITE_FULL": _FULL,
    "SQLITE_IOERR": _FAILING,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_CANTOPEN": _DENIED,
    "SQLITE_PERM": _DENIED,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_BUSY": _BUSY,
    "SQLITE_LOCKED": _BUSY,
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of the file system or of SQLite about `path` in the block into a `LedgerError` with a remedy."""
    try:
        yield
    except OSError as error:
        wanted = _BY_NUMBER.get(error.errno or 0, _FAILING)
        raise LedgerError(f"{path}: expected {wanted} ({error.strerror or error}). Nothing was released.") from error
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        parts = name.split("_")
        wanted = _BY_NAME.get(name) or _BY_NAME.get("_".join(parts[:2]), _DAMAGED)
        raise LedgerError(f"{path}: expected {wanted} ({error}). Nothing was released.") from error
