"""A SuperLink that is said, and what runs leave in their folder, for tests of who keeps them going."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from federation.config import Configuration, parse_configuration
from federation.errors import RunFailedError
from server_app.run_folder import RunFolder
from server_app.summary import RunStatus, Summary

COMPLETED, FAILED, STOPPED = "finished:completed", "finished:failed", "finished:stopped"
End = Callable[[RunFolder], str]


def configure(folder: Path, **settings: Any) -> Configuration:
    """Return the configuration of run "lungs" below `folder`; keyword `run__resume` sets `run.resume`."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return parse_configuration({"run.root": str(folder), "run.name": "lungs", **given})


def summary(status: RunStatus = RunStatus.COMPLETED, *, version: int = 5) -> Summary:
    """Return a summary without a hospital in it."""
    return Summary(
        run="lungs",
        engine="flower",
        status=status,
        updates_applied=version,
        model_version=version,
        final=None,
        per_hospital={},
        worst_hospital=None,
        silent_hospitals=[],
        staleness=None,
        refused={},
        bytes_up=0,
        bytes_down=0,
        wall_s=1.0,
        virtual_s=None,
        curve=[],
        guarantees=[],
        configuration={},
    )


def leave_summary(folder: RunFolder, left: Summary) -> None:
    """Write a summary later than any before it."""
    before = folder.summary.stat().st_mtime_ns if folder.summary.exists() else 0
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.summary.write_text(left.model_dump_json(), encoding="utf-8")
    os.utime(folder.summary, ns=(before + 10**9, before + 10**9))


def leave_version(folder: RunFolder, number: int = 3) -> None:
    """Leave a checkpoint."""
    (folder.checkpoints / f"version-{number}").mkdir(parents=True, exist_ok=True)


def completes(version: int = 5, *, status: str = COMPLETED, result: RunStatus = RunStatus.COMPLETED) -> End:
    """Return how a run ends that writes its summary."""

    def end(folder: RunFolder) -> str:
        leave_version(folder, version)
        leave_summary(folder, summary(result, version=version))
        return status

    return end


def crashes(version: int | None = 3, *, status: str = FAILED) -> End:
    """Return how a run ends that writes none, after it has made its folder, and `version` durable."""

    def end(folder: RunFolder) -> str:
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        if version is not None:
            leave_version(folder, version)
        return status

    return end


@dataclass
class MadeUpRuns:
    """A SuperLink on which runs end as said; each is seen running once before.

    Attributes:
        folder: of the run.
        ends: of the runs that are submitted or go on, in order.
        going: id of the run that goes on.
        away: how many times from now nobody answers.
        submitted: run configurations, in order.
        asked: ids whose status was asked for, in order.
        events: what the keeper told.
        slept: for how long it slept, in order.
    """

    folder: RunFolder
    ends: list[End]
    going: str | None = None
    away: int = 0
    submitted: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def submit(self, app: Path, run_config: dict[str, Any], /) -> str:
        if self._is_away():
            raise RunFailedError("Expected the SuperLink to start a run, found nobody.")
        assert self.going is None, "two runs at once"
        self.submitted.append(run_config)
        self.going = str(1000 + len(self.submitted))
        return self.going

    def status(self, run_id: str, /) -> str | None:
        if self._is_away():
            return None
        self.asked.append(run_id)
        if self.asked.count(run_id) < 2:
            return "running"
        assert run_id == self.going
        self.going = None
        return self.ends.pop(0)(self.folder)

    def unfinished(self) -> str | None:
        if self._is_away():
            raise RunFailedError("Expected the SuperLink to list its runs, found nobody.")
        return self.going

    def _is_away(self) -> bool:
        self.away -= 1
        return self.away >= 0

    def tell(self, event: str, fields: dict[str, Any]) -> None:
        self.events.append((event, fields))

    def sleep(self, seconds: float) -> None:
        assert len(self.slept) < 1000, "it waits for ever"
        self.slept.append(seconds)

    @property
    def resumed(self) -> list[bool]:
        """Of each submitted run, whether it was to resume the one before."""
        return [bool(settings["run.resume"]) for settings in self.submitted]
