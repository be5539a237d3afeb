"""The event log of a run as it grows: every line is read once, and the last one only when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from federation.metrics import Scores

_MOST_AT_THE_END = 65536


class AppliedUpdate(BaseModel):
    """One update in a step of the model."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    hospital: str
    staleness: int


class Event(BaseModel):
    """One line of the log, as far as it is shown; `server_app.journal` and the places that call it say what it means.

    Attributes:
        event: its kind.
        wall_s: seconds since this session of the run opened the log.
        hospital: whom it is about; None for nobody known.
        version: of the model that it made, sent, evaluated or began with.
        task: kind of a task that was sent.
        examples: training images that a hospital declared.
        reason: of a refusal, or why the run ended as it did.
        status: how the run ended.
        updates: that a step is made of.
        central: scores on the server's images.
        hospitals: scores by hospital.
        split: that late scores are of.
        accuracy: late scores, as the three after it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    event: str
    wall_s: float = Field(ge=0, allow_inf_nan=False)
    hospital: str | None = None
    version: int = 0
    task: str = ""
    examples: int = 0
    reason: str = ""
    status: str = ""
    updates: tuple[AppliedUpdate, ...] = ()
    central: Scores | None = None
    hospitals: dict[str, Scores] = Field(default_factory=dict)
    split: str = ""
    accuracy: float | None = None
    auroc: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one look at the log brought.

    Attributes:
        anew: whether this is another file than at the last look, so that what was read before is of another run.
        modified: when the file was written to last, in seconds since 1970; None without a file.
        events: new ones, in order; None stands for a line that is no event.
    """

    anew: bool
    modified: float | None
    events: Iterator[Event | None]


class EventLog:
    """Reads on in one event log, from where the last look ended."""

    def __init__(self, path: Path) -> None:
        """Follow the log at `path`, which need not be there yet."""
        self._path = path
        self._offset = 0
        self._inode: int | None = None

    @contextmanager
    def look(self) -> Iterator[Reading]:
        """Give what is new; the file is closed with the block.

        Raises:
            OSError: the file is there and cannot be read.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            anew, self._offset, self._inode = self._inode is not None, 0, None
            yield Reading(anew=anew, modified=None, events=iter(()))
            return
        with file:
            found = os.fstat(file.fileno())
            anew = self._inode is not None and (found.st_ino != self._inode or found.st_size < self._offset)
            self._offset, self._inode = 0 if anew else self._offset, found.st_ino
            file.seek(self._offset)
            yield Reading(anew=anew, modified=found.st_mtime, events=self._read_on(file))

    def _read_on(self, file: BinaryIO) -> Iterator[Event | None]:
        for line in file:
            if not line.endswith(b"\n"):
                return
            self._offset += len(line)
            yield parse_event(line)


def parse_event(line: bytes) -> Event | None:
    """Return the event that `line` holds; None where it holds none."""
    try:
        return Event.model_validate_json(line)
    except ValidationError:
        return None


def last_event(path: Path) -> Event | None:
    """Return the last whole event in the log at `path`; None where there is none near its end.

    Raises:
        OSError: the file is there and cannot be read.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _MOST_AT_THE_END))
        lines = file.read(_MOST_AT_THE_END).split(b"\n")[:-1]
    return next((event for line in reversed(lines) if (event := parse_event(line)) is not None), None)
