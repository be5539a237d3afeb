"""Copies of what left this hospital, where its policy names an outbox, so that it can attack its own updates.

A copy is made after the ledger's commit, of what is sent and nothing else. It protects nobody, so a copy that cannot be
made is told to the hospital's log alone: the answer has been paid for and leaves all the same.
Read next: `federation.recorded_updates`.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from client_app.site import Site
from client_app.site_log import log_task
from client_app.trained_update import Received
from federation.config import Configuration
from federation.datasets.image_set import DatasetInfo
from federation.errors import AegisError, DataError
from federation.recorded_updates.folder import UpdateFolder
from federation.recorded_updates.metadata import Origin, RecordedData, read_metadata
from federation.recorded_updates.names import (
    FACTS,
    TENSORS,
    facts_beside,
    is_model_file,
    is_record_file,
    tensors_beside,
    version_of,
)
from federation.records.answers import ModelUpdate
from federation.records.tasks import TrainingTask

# Whatever a copy may fail of: by then the budget is spent, and a failure that got out would cost the answer.
_FAILURES = (AegisError, OSError, ValueError, LookupError, TypeError, RuntimeError, MemoryError)

# The budget is spent by then: whoever holds the outbox for longer costs the copy, not the answer.
_PATIENCE_S = 2.0
_POLL_S = 0.05


def note_received(site: Site, task: TrainingTask, configuration: Configuration, info: DatasetInfo) -> Received | None:
    """Return what the copy of the update of `task` will need; None where the policy names no outbox."""
    if site.policy is None or not site.policy.outbox.folder:
        return None
    origin = Origin(
        run=configuration.run.name,
        model=configuration.model,
        data=RecordedData.of(info, name=site.data.name),
        training=task.plan,
    )
    return Received(origin=origin, parameters=task.parameters)


def keep_sent(site: Site, answer: ModelUpdate, received: Received | None) -> None:
    """Copy `answer` as it is sent, and delete all but the newest copies.

    Never fails: what went wrong stands in the hospital's own log, and in nothing that leaves it.

    Args:
        site: whose policy names the outbox.
        answer: after protection.
        received: from `note_received`, at the time of the training; None for no copy.
    """
    if site.policy is None or received is None or not site.policy.outbox.folder:
        return
    root = Path(site.policy.outbox.folder)
    try:
        with _held(root):
            folder = UpdateFolder(root / received.origin.run, secret=True)
            model = folder.keep_model(answer.model_version, received.parameters)
            newest = folder.keep_update(answer, received.origin, model)
            _delete_old(root, keep=site.policy.outbox.keep, newest=newest)
    except _FAILURES as error:
        log_task(site.state_dir, site.hospital_id, "outbox-failed", error=f"{type(error).__name__}: {error}")


@contextmanager
def _held(root: Path) -> Iterator[None]:
    """Hold the outbox for the block: runs that go on at one time must not delete what the other is writing.

    Raises:
        TimeoutError: somebody else held it all the time that an answer may be kept waiting.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = root / ".lock"
    lock.touch(mode=0o600)
    with lock.open("a") as file:
        _lock(file, root)
        yield


def _lock(file: IO[str], root: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                reason = f"Expected to hold {root} within {_PATIENCE_S:g} s, found that another process holds it."
                raise TimeoutError(reason) from None
            time.sleep(_POLL_S)
        else:
            return


def _delete_old(root: Path, *, keep: int, newest: Path) -> None:
    """Delete all but the `keep` newest copies over all runs, what only the deleted ones need, and leftovers of crashes.

    Args:
        root: the outbox; in its folders only files are touched that are named like copies.
        keep: copies that stay.
        newest: metadata of the one that was just made, whatever the clock says.
    """
    facts = [path for path in root.glob(f"*/*{FACTS}") if is_record_file(path) and path != newest]
    facts.sort(key=lambda path: (path.stat().st_mtime_ns, version_of(path), path.name))
    for path in facts[: max(0, len(facts) + 1 - keep)]:
        path.unlink()
        tensors_beside(path).unlink(missing_ok=True)
    for folder in {path.parent for path in [*facts, newest]}:
        _sweep(folder)


def _sweep(folder: Path) -> None:
    """Delete the models and updates in `folder` that no metadata speak of, and the folder when nothing is left.

    Damaged metadata speak of no model: all those of their version stay with them.
    """
    needed: set[str] = set()
    unknown: set[int] = set()
    for path in folder.glob(f"*{FACTS}"):
        if is_record_file(path):
            try:
                needed.add(read_metadata(path).model_file)
            except DataError:
                unknown.add(version_of(path))
    for path in folder.glob(f"*{TENSORS}"):
        if is_model_file(path):
            superfluous = path.name not in needed and version_of(path) not in unknown
        else:
            superfluous = is_record_file(path) and not facts_beside(path).exists()
        if superfluous:
            path.unlink()
    for path in folder.glob(".write-*.tmp"):
        path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
