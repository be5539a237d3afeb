"""The runs in one folder, newest first, and their readers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from deploy.coordinator.event_log import last_event
from deploy.coordinator.run import Run, Standing
from deploy.coordinator.run_reader import RunReader
from federation.errors import ConfigurationError
from server_app.run_folder import RunFolder
from server_app.summary import RunStatus

MOST_LISTED = 50
_MOST_READERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One line of the list of runs.

    Attributes:
        name: of its folder.
        standing: how it stands.
        modified: when its event log, or without one its summary, was last written, in seconds since 1970.
    """

    name: str
    standing: Standing
    modified: float


class Runs:
    """The runs below one folder; of each that is asked for, the event log is read on and not read again."""

    def __init__(self, root: Path) -> None:
        """Look at the run folders in `root`, which need not be there yet."""
        self._root = root
        self._readers: OrderedDict[str, RunReader] = OrderedDict()
        self._lock = threading.Lock()

    def list(self) -> tuple[RunEntry, ...]:
        """Return the newest runs, the newest first; at most `MOST_LISTED`.

        Raises:
            OSError: the folder is there and cannot be read.
        """
        found = sorted(((stamp, path) for path, stamp in self._find().items()), reverse=True)
        return tuple(
            RunEntry(name=path.name, standing=_standing_of(path), modified=stamp) for stamp, path in found[:MOST_LISTED]
        )

    def read(self, name: str) -> Run:
        """Return the run called `name` as it is now.

        Raises:
            ConfigurationError: there is no run of this name in the folder.
            OSError: a file of it is there and cannot be read.
        """
        with self._lock:
            return self._reader_of(name).read()

    def _find(self) -> dict[Path, float]:
        """Return every run folder with the time when it was last written to."""
        if not self._root.is_dir():
            return {}
        stamps = {path: _modified(path) for path in self._root.iterdir() if path.name.isprintable()}
        return {path: stamp for path, stamp in stamps.items() if stamp is not None}

    def _reader_of(self, name: str) -> RunReader:
        """Return the reader of the run called `name`, which must be among those that are found: no name is a path."""
        path = next((path for path in self._find() if path.name == name), None)
        if path is None:
            raise ConfigurationError(f"Expected the name of a run in {self._root}, found {name!r}.")
        reader = self._readers.pop(name, None) or RunReader(path)
        self._readers[name] = reader
        while len(self._readers) > _MOST_READERS:
            self._readers.popitem(last=False)
        return reader


def _modified(path: Path) -> float | None:
    """Return when the run in `path` was last written to; None where there is no run."""
    folder = RunFolder(path)
    for file in (folder.events, folder.summary):
        try:
            return file.stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def _standing_of(path: Path) -> Standing:
    last = last_event(RunFolder(path).events)
    if last is None or last.event != "finish":
        return Standing.IN_PROGRESS
    return Standing(last.status) if last.status in set(RunStatus) else Standing.FAILED
