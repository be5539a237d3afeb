"""A progress bar for a run in any engine, fed by the run's own event log."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_POLL_S = 0.2


class RunProgress:
    """Follows `events.jsonl` in a thread and draws versions made, newest accuracy and refusals."""

    def __init__(self, events: Path, rounds: int, console: Console) -> None:
        """Follow the event log at `events`, which may not exist yet, of a run of `rounds` versions."""
        self._events = events
        self._rounds = rounds
        self._refused = 0
        self._scores = ""
        self._done = threading.Event()
        self._inode = events.stat().st_ino if events.exists() else None
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        self._task = self._bar.add_task("waiting for hospitals", total=self._rounds)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Draw the last state and leave the bar on the screen."""
        self._done.set()
        self._thread.join()
        self._bar.stop()

    def _follow(self) -> None:
        position = 0
        while True:
            ending = self._done.is_set()
            if self._is_of_this_run():
                position = self._read_from(position)
            if ending:
                return
            self._done.wait(_POLL_S)

    def _is_of_this_run(self) -> bool:
        """Return whether the log exists and is not the one that an older run of this name left."""
        return self._events.exists() and self._events.stat().st_ino != self._inode

    def _read_from(self, position: int) -> int:
        with self._events.open(encoding="utf-8") as file:
            file.seek(position)
            while (line := file.readline()).endswith("\n"):
                position = file.tell()
                self._show(json.loads(line))
        return position

    def _show(self, event: dict[str, Any]) -> None:
        if event["event"] == "refusal":
            self._refused += 1
        elif event["event"] == "evaluate":
            central = event["central"]
            self._scores = f"  accuracy {central['accuracy']:.3f}" if central else ""
        elif event["event"] == "apply":
            self._bar.update(self._task, completed=event["version"])
        refused = f"  refused {self._refused}" if self._refused else ""
        self._bar.update(self._task, description=f"training{self._scores}{refused}")
