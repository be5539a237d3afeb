"""Names the points that a server passes, and keeps a book of what it sees, beside the run's own files.

The product holds no hooks for this: its parts are watched from outside, where they reach the disk and one another.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from federation.parameters import Parameters, digest
from federation.records.declarations import Declaration
from server_app import intake
from server_app.admission import admit_update
from server_app.aggregation.rule import Update
from server_app.checkpoint import CheckpointStore
from server_app.correspondence import Correspondence
from server_app.global_model import GlobalModel
from server_app.journal import Journal
from server_app.resumption import Resumption
from server_app.update_buffer import DiskBuffer

Reach = Callable[[str], None]

_PARTS = (
    (CheckpointStore, "save"),
    (Correspondence, "ask"),
    (DiskBuffer, "hold"),
    (DiskBuffer, "drop"),
    (DiskBuffer, "restore"),
    (GlobalModel, "apply"),
    (intake.Intake, "settle"),
    (Resumption, "run"),
)
_FILES = {"checkpoints": "checkpoint", "buffer": "update"}


def fingerprint(tensors: Parameters) -> str:
    """Return a digest of `tensors` in which their order does not count."""
    return digest(dict(sorted(tensors.items())))


class Book:
    """Appends what the server sees to a file, which like every write survives a killed process."""

    def __init__(self, path: Path, *, resumed: bool) -> None:
        """Write to the end of `path`, about a session that is `resumed` or not."""
        self._resumed = resumed
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._began = 0.0
        self._at_work = False

    def line(self, kind: str, **fields: Any) -> None:
        """Append one line."""
        os.write(self._descriptor, f"{json.dumps({'kind': kind, **fields})}\n".encode())

    def begin(self) -> None:
        """Begin to count the seconds until the server is at work."""
        self._began = time.perf_counter()

    def at_work(self) -> None:
        """Note once how long that took: until the first task or decision is sent, or an update applied."""
        if not self._at_work:
            self._at_work = True
            self.line("at work", resumed=self._resumed, seconds=time.perf_counter() - self._began, at=time.time())


def watch_parts(reach: Reach, book: Book) -> None:
    """Name the calls by which an update goes through the server, and let `book` know of them.

    The book says what is in a version before the version can be durable, and what is held after it is.
    """
    apply, hold, ask, record = GlobalModel.apply, DiskBuffer.hold, Correspondence.ask, Journal.record
    admit, admitted = admit_update, deque[str](maxlen=1)

    def noted_apply(
        self: GlobalModel, updates: Sequence[Callable[[], Parameters]], coefficients: Sequence[float], **rest: float
    ) -> None:
        book.at_work()
        steps = [_describe(load(), factor) for load, factor in zip(updates, coefficients, strict=True)]
        book.line("apply", version=self.version + 1, updates=steps)
        apply(self, updates, coefficients, **rest)

    def noted_hold(self: DiskBuffer, update: Update, declaration: Declaration | None) -> Update:
        held = hold(self, update, declaration)
        book.line("held", print=fingerprint(update.load()))
        return held

    def noted_ask(self: Correspondence, content: Any, **rest: Any) -> bool:
        if rest["kind"] != "query":
            book.at_work()
        return ask(self, content, **rest)

    def named_record(self: Journal, event: str, elapsed_s: float, **fields: object) -> None:
        reach(f"record {event} before")
        record(self, event, elapsed_s, **fields)
        if event == "update":
            book.line("accepted", print=admitted[-1])
        reach(f"record {event} after")

    def noted_admission(*arguments: Any, **options: Any) -> Update:
        update = admit(*arguments, **options)
        admitted.append(fingerprint(update.load()))
        return update

    noted = {GlobalModel: ("apply", noted_apply), DiskBuffer: ("hold", noted_hold), Correspondence: ("ask", noted_ask)}
    for owner, (name, call) in noted.items():
        setattr(owner, name, call)
    setattr(Journal, "record", named_record)  # noqa: B010 - mypy lets nobody assign to a method.
    setattr(intake, "admit_update", noted_admission)  # noqa: B010
    for owner, name in _PARTS:
        setattr(owner, name, _watched(getattr(owner, name), f"{owner.__name__}.{name}", reach))


def watch_disk(reach: Reach) -> None:
    """Name the calls by which files become durable, before and after each, and files that are half written."""
    fsync = os.fsync

    def tear(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}")
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            content = path.read_bytes()
            os.truncate(path, len(content) // 2)
            reach(f"torn {_label(descriptor)}")
            path.write_bytes(content)
        fsync(descriptor)

    setattr(os, "fsync", _labelled(tear, "fsync", reach))  # noqa: B010
    for name in ("replace", "rename", "unlink"):
        setattr(os, name, _labelled(getattr(os, name), name, reach))


def _labelled(real: Callable[..., Any], name: str, reach: Reach) -> Callable[..., Any]:
    def call(target: int | str | Path, *rest: Any, **options: Any) -> Any:
        return _watched(real, f"{name} {_label(target)}", reach)(target, *rest, **options)

    return call


def _watched(real: Callable[..., Any], point: str, reach: Reach) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        reach(f"{point} before")
        made = real(*arguments, **options)
        reach(f"{point} after")
        return made

    return call


def _label(target: int | str | Path) -> str:
    """Return what kind of file `target` is: a new checkpoint or update, a finished one, another file, or a folder."""
    path = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
    if path.is_dir():
        return "folder"
    kind = _FILES.get(path.parent.name, "file")
    return kind if path.name.startswith(".write-") else f"finished {kind}"


def _describe(update: Parameters, coefficient: float) -> dict[str, Any]:
    values = {name: value.tolist() for name, value in update.items()}
    return {"print": fingerprint(update), "coefficient": coefficient, "values": values}
