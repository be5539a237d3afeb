"""The hospital's own log: JSON lines on its own volume. It may hold details; it is never sent.

Two files of five megabytes at most, so that no server can fill the volume with failures.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from pathlib import Path

_LARGEST_LOG_BYTES = 5_000_000
_LOGGER = logging.getLogger("aegis.client")


def log_task(folder: Path, hospital_id: str, event: str, **fields: object) -> None:
    """Append one line about a finished task to `<folder>/<hospital_id>.log`, mode 0600."""
    _append(folder / f"{hospital_id}.log", {"event": event, **fields})


def log_failure(folder: Path, hospital_id: str, code: int, error: BaseException) -> None:
    """Append the full story of `error` to `<folder>/<hospital_id>.log`; only `code` is told to anyone else."""
    story = "".join(traceback.format_exception(error))
    _append(folder / f"{hospital_id}.log", {"event": "failure", "code": code, "error": str(error), "traceback": story})


def _append(path: Path, entry: dict[str, object]) -> None:
    """Write one line; a log that cannot be written costs a warning without details, never the task."""
    line = json.dumps({"time": round(time.time(), 3), **entry}, default=str)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists() and path.stat().st_size > _LARGEST_LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        if not path.exists():
            path.touch(mode=0o600)
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except (OSError, ValueError) as error:  # A path with a null byte or a lone surrogate is a ValueError.
        _LOGGER.warning("The local log cannot be written (errno %s).", getattr(error, "errno", None))
