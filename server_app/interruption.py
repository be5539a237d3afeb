"""SIGINT and SIGTERM end a run at once, with its results written; Flower's own handler comes afterwards.

Flower ends a ServerApp (`flwr stop`, a lost SuperLink, SIGTERM) by SIGINT, and its handler leaves five seconds for
everything, most of which its own last uploads take: nothing would be written when the SuperLink is gone.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """Turn the first signal within the block into a KeyboardInterrupt, and hand it to the former handler at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        _restore(before)
        signal.raise_signal(signal.SIGINT)
        raise
    finally:
        _restore(before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def _restore(before: Mapping[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
