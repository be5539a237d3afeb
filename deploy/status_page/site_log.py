"""The hospital's own log as the page may show it: which tasks ended how, in fixed words.

The log itself holds the texts and traces of errors; of those nothing is taken over but codes. Training that diverged on
private images is not shown, either: the update in its place is zeros and noise so that nobody but the log tells.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.errors import SiteErrorCode

FAILURE = "failure"
OTHER = "other"
WITHHELD = "diverged"
_MOST_BYTES = 16_000_000
_WORDS = {
    "update": "Released an update",
    "ready": "Trained; the update waits for the coordinator's decision",
    "discarded": "Deleted an update that was not wanted; nothing was released",
    "outbox-failed": "A copy for the outbox could not be written; the log has more",
    FAILURE: "Answered with a refusal or a failure",
    OTHER: "Something that this page does not know; the log has more",
}
EVENTS = tuple(_WORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One finished task.

    Attributes:
        time: in seconds since 1970.
        event: one of `EVENTS`.
        code: of a failure; None for one that this version does not know, and where there was none.
        model_version: that the task was about; None where the log does not say.
    """

    time: float
    event: str
    code: SiteErrorCode | None = None
    model_version: int | None = None

    @property
    def words(self) -> str:
        """What happened, in a sentence that holds nothing a server or an error wrote."""
        if self.event == FAILURE:
            return self.code.sentence if self.code else "A failure that this page does not know; the log has more."
        about = "" if self.model_version is None else f" (model version {self.model_version})"
        return f"{_WORDS[self.event]}{about}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The failures of one code.

    Attributes:
        name: of the code, as the coordinator sees it.
        sentence: its fixed text.
        count: in the log.
        latest: time of the newest one.
    """

    name: str
    sentence: str
    count: int
    latest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLog:
    """What the log's two files still hold.

    Attributes:
        entries: oldest first.
        damaged: lines that cannot be read.
    """

    entries: tuple[Entry, ...] = ()
    damaged: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of entries of each event that a page knows, 0 among them."""
        found = Counter(entry.event for entry in self.entries)
        return {event: found[event] for event in EVENTS}

    @property
    def refusals(self) -> tuple[Refusals, ...]:
        """The failures by code, the newest first."""
        by_name: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.event == FAILURE:
                by_name.setdefault(_name_of(entry.code), []).append(entry)
        found = [
            Refusals(name=name, sentence=entries[-1].words, count=len(entries), latest=max(e.time for e in entries))
            for name, entries in by_name.items()
        ]
        return tuple(sorted(found, key=lambda item: -item.latest))


def log_paths(state_dir: Path, hospital_id: str) -> tuple[Path, Path]:
    """Return the log's older file and its newer one, whether or not they exist."""
    return state_dir / f"{hospital_id}.log.1", state_dir / f"{hospital_id}.log"


def read_log(state_dir: Path, hospital_id: str) -> SiteLog:
    """Return what the log holds; nothing where there is none yet.

    Raises:
        OSError: a file is there and cannot be read.
    """
    entries: list[Entry] = []
    damaged = 0
    for path in log_paths(state_dir, hospital_id):
        for line in _lines(path):
            try:
                found = _parse(line)
            except (ValueError, OverflowError, RecursionError):
                damaged += 1
            else:
                entries += [found] if found.event != WITHHELD else []
    return SiteLog(entries=tuple(entries), damaged=damaged)


def newest(log: SiteLog, number: int) -> tuple[Entry, ...]:
    """Return the newest `number` entries, newest first."""
    return tuple(reversed(log.entries[-number:]))


def _lines(path: Path) -> Iterable[bytes]:
    """Yield the lines of the file's end; a first one that is cut off is left out, as is a last one half written."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - _MOST_BYTES))
            lines = file.read(_MOST_BYTES).split(b"\n")
    except FileNotFoundError:
        return ()
    return [line for line in lines[1 if start else 0 : -1] if line.strip()]


def _parse(line: bytes) -> Entry:
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError(f"Expected a table, found {type(content).__name__}.")
    time, event = content.get("time"), content.get("event")
    if not isinstance(time, int | float) or not math.isfinite(time):
        raise ValueError(f"Expected a time, found {type(time).__name__}.")
    known = event if isinstance(event, str) and event in (*EVENTS, WITHHELD) else OTHER
    return Entry(time=float(time), event=known, code=_code_of(content), model_version=_version_of(content))


def _code_of(content: dict[str, Any]) -> SiteErrorCode | None:
    code = content.get("code")
    return next((known for known in SiteErrorCode if type(code) is int and code == known), None)


def _version_of(content: dict[str, Any]) -> int | None:
    version = content.get("model_version")
    return version if type(version) is int and 0 <= version < 10**12 else None


def _name_of(code: SiteErrorCode | None) -> str:
    return code.name.lower().replace("_", "-") if code else "unknown"
