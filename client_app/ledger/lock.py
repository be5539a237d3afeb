"""One client at a time: an exclusive lock that the operating system lifts when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from contextlib import ExitStack
from pathlib import Path

from client_app.ledger.faults import explained
from federation.errors import LedgerError

_PAUSE_S = 0.02


class ClientLock:
    """An exclusive `flock` on a file of its own.

    The file is not the ledger itself: SQLite's own locks are lost when any other descriptor of its file is closed. A
    forked child drops its copy, so that a child that outlives its parent does not keep the next client out.
    """

    def __init__(self, path: Path, *, wait_s: float) -> None:
        """Take the lock on `path`, which is created.

        Args:
            path: file to lock.
            wait_s: longest time to wait for another holder, in seconds.

        Raises:
            LedgerError: another client holds it for longer, or the file cannot be opened.
        """
        with explained(path), ExitStack() as undo:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, self._descriptor)
            self._take(path, wait_s)
            undo.pop_all()
        _HELD.add(self)

    def _take(self, path: Path, wait_s: float) -> None:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise LedgerError(
                        f"{path}: expected to be the only client, found another one that has held the ledger for "
                        f"{wait_s:g} s: end it, or give this one another hospital id. Nothing was released."
                    ) from None
                time.sleep(_PAUSE_S)
            else:
                return

    def release(self) -> None:
        """Let the next client in; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        _HELD.discard(self)


_HELD: weakref.WeakSet[ClientLock] = weakref.WeakSet()


def _drop_copies() -> None:
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_drop_copies)
