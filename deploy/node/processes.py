"""Processes below the supervisor: started, minded, ended with all that they started, their output kept and rotated."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

import psutil

_LARGEST_LOG_BYTES = 5_000_000
_LOGS = 3
_LAST_LINES = 20
_STOP_LIMIT_S = 15.0
_AGAIN_S = 10.0


class _QuietHandler(RotatingFileHandler):
    """Loses a line that it cannot write: the usual handler would print it to the container's log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Say nothing."""
        del record


class ProcessLog:
    """The hospital's log of everything its processes print: JSON lines on its own volume, rotated, never sent."""

    def __init__(self, path: Path) -> None:
        """Write to `path`, and to three older files beside it."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._handler = _QuietHandler(path, maxBytes=_LARGEST_LOG_BYTES, backupCount=_LOGS, encoding="utf-8")
        self._handler.setFormatter(logging.Formatter("%(message)s"))

    def write(self, source: str, line: str) -> None:
        """Add one line of `source`; a full disk costs the line, never the process."""
        entry = json.dumps({"time": round(time.time(), 3), "from": source, "line": line})
        self._handler.handle(logging.makeLogRecord({"msg": entry, "levelno": logging.INFO}))


class Child:
    """One process and what it last printed."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: ProcessLog) -> None:
        """Start `command`; its output goes to `log` under `name`."""
        self.started = time.time()
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._name, self._log = name, log
        self._process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it is alive."""
        return self._process.poll()

    def runs_below(self, command: str) -> bool:
        """Return whether a process that was started by this one, or by one of its own, has `command` in its line."""
        try:
            below = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return False
        return any(_has(process, command) for process in below)

    def stop(self) -> None:
        """End the process and everything it started: asked first, killed after fifteen seconds."""
        try:
            root = psutil.Process(self._process.pid)
            family = [*root.children(recursive=True), root]
        except psutil.NoSuchProcess:
            family = []
        for process in family:
            _send(process, kill=False)
        _, alive = psutil.wait_procs(family, timeout=_STOP_LIMIT_S)
        for process in alive:
            _send(process, kill=True)
        self._process.wait()
        self._reader.join(timeout=1.0)

    def _read(self, output: IO[str] | None) -> None:
        if output is None:
            return
        with output:
            for line in output:
                self.last_lines.append(line.rstrip("\n"))
                self._log.write(self._name, line.rstrip("\n"))


class Kept:
    """A process that is started again some time after it has ended."""

    def __init__(self, start: Callable[[], Child]) -> None:
        """Start it."""
        self._start, self._child = start, start()

    def mind(self) -> None:
        """Start it again, where it ended and was started ten seconds ago or more."""
        if not self._child.running and abs(time.time() - self._child.started) > _AGAIN_S:
            self._child.stop()
            self._child = self._start()

    def stop(self) -> None:
        """End it."""
        self._child.stop()


def _has(process: psutil.Process, command: str) -> bool:
    try:
        return any(command in part for part in process.cmdline())
    except psutil.Error:
        return False


def _send(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        return
