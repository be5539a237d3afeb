"""A progress bar for a run in any engine, fed by the run's own event log."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from federation.errors import RefusalCode

_POLL_S = 0.2


class RunProgress:
    """Follows `events.jsonl` in a thread and draws versions made, updates, staleness, newest accuracy and refusals.

    Updates, staleness and refusals are those that the bar has seen: of a resumed run, since it was resumed.
    """

    def __init__(self, events: Path, rounds: int, console: Console, *, resume: bool) -> None:
        """Follow the event log at `events`, which may not exist yet, of a run of `rounds` versions.

        A resumed run appends to its log, a new one replaces the log of an older run of its name.
        """
        self._events = events
        self._rounds = rounds
        self._refused = 0
        self._discarded = 0
        self._updates = 0
        self._staleness = 0
        self._scores = ""
        self._done = threading.Event()
        older = events.stat() if events.exists() else None
        self._position = older.st_size if older and resume else 0
        self._other_inode = older.st_ino if older and not resume else None
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
        while True:
            ending = self._done.is_set()
            with contextlib.suppress(FileNotFoundError):  # Not written yet, or being moved aside.
                self._read_on()
            if ending:
                return
            self._done.wait(_POLL_S)

    def _read_on(self) -> None:
        with self._events.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_ino == self._other_inode:
                return
            file.seek(self._position)
            while (line := file.readline()).endswith("\n"):
                self._position = file.tell()
                self._show(json.loads(line))

    def _show(self, event: dict[str, Any]) -> None:
        if event["event"] == "refusal":
            discarded = event["reason"] == RefusalCode.DISCARDED.value
            self._discarded += discarded
            self._refused += not discarded
        elif event["event"] == "evaluate":
            central = event["central"]
            self._scores = f"accuracy {central['accuracy']:.3f}" if central else ""
        elif event["event"] == "apply":
            self._updates += len(event["updates"])
            self._staleness += sum(update["staleness"] for update in event["updates"])
            self._bar.update(self._task, completed=event["version"])
        self._bar.update(self._task, description=self._describe())

    def _describe(self) -> str:
        parts = [f"{self._updates} updates" if self._updates else "training"]
        if self._staleness:
            parts.append(f"stale {self._staleness / self._updates:.1f}")
        if self._scores:
            parts.append(self._scores)
        counts = (("refused", self._refused), ("discarded", self._discarded))
        return "  ".join([*parts, *(f"{word} {count}" for word, count in counts if count)])
