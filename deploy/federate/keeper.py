"""Keeps one run going to its end: a crash of server app, SuperLink or machine costs time, and nothing else.

Flower fails the run whose SuperLink or server app is killed and starts it no more. All state that counts is in the
run's own folder, so a new run of Flower resumes where the last version was made durable.

How a run ended is noted beside its result, with what was asked for: a keeper that is started again, as containers are,
says so once more and does not run it a second time, which hospitals would pay for.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deploy.outcome import summary_stamp
from federation.config import Configuration, flatten
from federation.durable import write_durably
from federation.errors import RunFailedError
from server_app.run_folder import RunFolder
from server_app.summary import RunStatus, Summary

_LOOK_S = 3.0
_ASK_EVERY_S = 30.0
_AGAIN_S = 5.0
_FINISHED, _COMPLETED, _STOPPED = "finished:", "finished:completed", "finished:stopped"
_GIVEN_UP = "given-up"
_NEVER_TAKEN = "Invalid run configuration"

_NOTE = "kept.json"

Tell = Callable[[str, dict[str, Any]], None]


class Runs(Protocol):
    """Where runs are submitted: a SuperLink, or a test's."""

    def submit(self, app: Path, run_config: dict[str, Any], /) -> str:
        """Submit a run and return its id; `RunFailedError` where that fails."""

    def status(self, run_id: str, /) -> str | None:
        """Return the status of a run; None while nobody tells."""

    def unfinished(self) -> str | None:
        """Return the id of the newest run that has not finished; `RunFailedError` while nobody tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Who keeps which run.

    Attributes:
        runs: where it is submitted.
        app: folder of the Flower app.
        configuration: of the run.
        attempts: how often a crashed run is started again before it is given up.
        tell: called with every event and its fields.
        sleep: waits so many seconds.
    """

    runs: Runs
    app: Path
    configuration: Configuration
    attempts: int
    tell: Tell
    sleep: Callable[[float], None] = time.sleep

    def keep(self, *, again: bool = False) -> Summary:
        """Return the summary of the run once it has ended.

        A run of this name that was broken off is resumed, and one that goes on is followed: a keeper that was killed
        is started again like everything else.

        Args:
            again: run anew what has ended under the same name and settings.

        Raises:
            RunFailedError: the run failed for a reason of its own, was stopped, or crashed too often; or it had ended
                so when an earlier keeper was here.
        """
        folder = RunFolder.of(self.configuration.run)
        if not again and (ended := self._read_end(folder)):
            self.tell("had-ended", {"status": ended})
            return _finish(folder, ended)
        before = summary_stamp(folder)
        for attempt in range(self.attempts + 1):
            run_id = self._start(resume=_was_broken_off(folder))
            status = self._wait(run_id, folder, before)
            self.tell("ended", {"run": run_id, "status": status, "attempt": attempt})
            if summary_stamp(folder) not in (0, before):
                self._note_end(folder, status)
                return _finish(folder, status)
            if status == _STOPPED:
                self._note_end(folder, status)
                return _finish(folder, status)
            self.sleep(_AGAIN_S)
        self._note_end(folder, _GIVEN_UP)
        raise RunFailedError(f"The run ended without a result {self.attempts + 1} times; {folder.path} has its log.")

    def _start(self, *, resume: bool) -> str:
        """Return the id of the run that goes on, or else of one that is submitted as soon as somebody takes it.

        A run may go on of which nobody heard that it was taken: two would want the same folder.
        """
        settings = {**flatten(self.configuration), "run.resume": resume or self.configuration.run.resume}
        refused = ""
        while True:
            try:
                if run_id := self.runs.unfinished():
                    self.tell("followed", {"run": run_id})
                    return run_id
                run_id = self.runs.submit(self.app, settings)
            except RunFailedError as error:
                if _NEVER_TAKEN in str(error):
                    raise
                if str(error) != refused:
                    refused = str(error)
                    self.tell("not-taken", {"reason": refused})
                self.sleep(_AGAIN_S)
                continue
            self.tell("submitted", {"run": run_id, "resume": resume})
            return run_id

    def _wait(self, run_id: str, folder: RunFolder, before: int) -> str:
        """Return how the run ended: asked seldom, since a question is a process, and often once there is a result."""
        while True:
            status = self.runs.status(run_id)
            if status is not None and status.startswith(_FINISHED):
                return status
            waited = 0.0
            while waited < _ASK_EVERY_S:
                self.sleep(_LOOK_S)
                waited += _LOOK_S if summary_stamp(folder) in (0, before) else _ASK_EVERY_S

    def _note_end(self, folder: RunFolder, status: str) -> None:
        note = {"status": status, "asked": self._asked(), "summary": summary_stamp(folder)}
        try:
            write_durably(folder.path / _NOTE, json.dumps(note).encode())
        except OSError as error:
            self.tell("end-not-noted", {"errno": error.errno})

    def _read_end(self, folder: RunFolder) -> str:
        """Return how this very run ended, by the note of an earlier keeper; empty where nothing says that it did."""
        try:
            note = json.loads((folder.path / _NOTE).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return ""
        same = note.get("asked") == self._asked() and note.get("summary") == summary_stamp(folder)
        return str(note["status"]) if same else ""

    def _asked(self) -> str:
        return hashlib.sha256(self.configuration.model_dump_json().encode()).hexdigest()


def _was_broken_off(folder: RunFolder) -> bool:
    """Return whether there is a run to go on with: versions, and no result."""
    return folder.checkpoints.is_dir() and any(folder.checkpoints.iterdir()) and not folder.summary.exists()


def _finish(folder: RunFolder, status: str) -> Summary:
    """Return the result of a run that ended with `status`.

    Raises:
        RunFailedError: it has none, or is a failed one.
    """
    if status in (_STOPPED, _GIVEN_UP):
        raise RunFailedError(f"The run was {'stopped' if status == _STOPPED else 'given up'}: {folder.path}.")
    summary = Summary.model_validate_json(folder.summary.read_text(encoding="utf-8"))
    # A SuperLink that is killed right behind the end of a run calls it failed.
    came_through = summary.status is RunStatus.COMPLETED and not summary.silent_hospitals
    if status != _COMPLETED and not came_through:
        raise RunFailedError(f"Expected the run to end as {_COMPLETED}, found {status}: {folder.path} says why.")
    return summary
