"""The event log of a run: one JSON line per dispatch, reply, refusal, application and evaluation, in order."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_LOGGER = logging.getLogger("aegis.server")


class Journal:
    """Appends events; every line is flushed, so that a watcher or a killed run shows all that happened."""

    def __init__(self, path: Path) -> None:
        """Open the log at `path` for appending."""
        self._file = path.open("a", encoding="utf-8")
        self._opened = time.monotonic()

    def record(self, event: str, elapsed_s: float, **fields: object) -> None:
        """Append one event at `elapsed_s` seconds on the run's clock; `wall_s` counts from the opening of the log."""
        times = {"elapsed_s": round(elapsed_s, 6), "wall_s": round(time.monotonic() - self._opened, 6)}
        self._file.write(json.dumps({"event": event, **times, **fields}) + "\n")
        self._file.flush()

    def say(self, text: str, *values: object) -> None:
        """Log one line for the person who watches the run."""
        _LOGGER.info(text, *values)

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log."""
        self._file.close()
