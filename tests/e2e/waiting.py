"""Waiting for other processes: look again and again, but not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

# Far from what anything takes on a machine that has nothing else to do; it only ends a test that hangs.
_LIMIT_S = 240.0


def wait_until(ready: Callable[[], bool], what: str, *, every_s: float = 0.2) -> None:
    """Return when `ready` does; fail the test, which expected `what`, when it takes too long."""
    end = time.monotonic() + _LIMIT_S
    while not ready():
        if time.monotonic() > end:
            raise AssertionError(f"Expected {what} within {_LIMIT_S:g} s.")
        time.sleep(every_s)
