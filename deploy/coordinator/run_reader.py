"""Where a run is read from: what ended, from its `summary.json`; what goes on, from `events.jsonl` and a checkpoint.

Read next: `run_log`, which follows the event log; `runs`, which finds the run folders.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from deploy.coordinator.budgets import Budget, CheckpointedBudgets, budgets_of
from deploy.coordinator.run import Participant, Run, Standing, Waiting
from deploy.coordinator.run_log import RunLog
from deploy.rebuild_report import read_summary
from federation.config import Configuration
from federation.errors import ConfigurationError
from server_app.report.order import natural_key
from server_app.run_folder import RunFolder
from server_app.summary import CurvePoint, HospitalSummary, RunStatus, Staleness, Summary

_PATIENCE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What summary and log can both tell."""

    standing: Standing
    reason: str
    version: int
    parts: Mapping[str, HospitalSummary]
    budgets: Mapping[str, Budget]
    staleness: Staleness | None
    refused: Mapping[str, int]
    curve: Sequence[CurvePoint]
    basis: str


class RunReader:
    """Reads one run folder again and again, and of its event log only what is new."""

    def __init__(self, path: Path) -> None:
        """Read the run folder at `path`."""
        self._folder = RunFolder(path)
        self._log = RunLog(self._folder.events)
        self._mirror = CheckpointedBudgets(self._folder.checkpoints)
        self._summary: tuple[int, Summary] | None = None

    def read(self) -> Run:
        """Return the run as it is now.

        Raises:
            OSError: a file of it is there and cannot be read.
        """
        log, doubts = self._log, list[str]()
        log.read_on()
        if log.damaged:
            doubts.append(f"{log.damaged} lines of {self._folder.events.name} are no events and are left out.")
        settings = self._read_configuration(doubts)
        ended = log.end is not None or (not log.sessions and self._folder.summary.exists())
        summary = self._read_summary(doubts) if ended else None
        ids = settings.run.configured_ids if settings else ()
        told = _told_by_summary(summary) if summary else _told_by_log(log, ids, self._mirror.read())
        people = [self._describe(name, told) for name in sorted(told.parts, key=natural_key)]
        scored = [item for item in people if item.accuracy is not None and math.isfinite(item.accuracy)]
        wait_s = (settings or Configuration()).run.wait_s
        return Run(
            name=self._folder.path.name,
            standing=told.standing,
            reason=told.reason,
            newest=log.newest,
            version=told.version,
            rounds=settings.aggregation.rounds if settings else None,
            participants=tuple(people),
            staleness=told.staleness.mean if told.staleness else None,
            stalest=told.staleness.max if told.staleness else 0,
            refused=told.refused,
            curve=tuple(told.curve),
            accuracy=next((point.central.accuracy for point in reversed(told.curve) if point.central), None),
            worst=min(scored, key=lambda item: item.accuracy or 0.0, default=None),
            basis=told.basis if scored else "",
            patience_s=max(wait_s, _PATIENCE * log.longest_task_s),
            doubts=tuple(doubts),
        )

    def _read_configuration(self, doubts: list[str]) -> Configuration | None:
        path = self._folder.path / "config.toml"
        try:
            return Configuration.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError):
            doubts.append(f"{path.name} is missing or not of this version; how many versions are planned is not known.")
            return None

    def _read_summary(self, doubts: list[str]) -> Summary | None:
        """Return the summary, which is read again only when it was written again; None when it cannot be used."""
        try:
            stamp = self._folder.summary.stat().st_mtime_ns
            if self._summary is None or self._summary[0] != stamp:
                self._summary = stamp, read_summary(self._folder)
        except (FileNotFoundError, ConfigurationError, UnicodeDecodeError):
            name = self._folder.summary.name
            doubts.append(f"{name} is missing or not of this version; what is shown comes from the event log.")
            return None
        return self._summary[1]

    def _describe(self, name: str, told: _Told) -> Participant:
        log, part = self._log, told.parts[name]
        task = log.open.get(name)
        sent = log.time_of(task.sent) if task else None
        return Participant(
            hospital=name,
            examples=part.examples,
            dispatched=part.dispatched,
            updates=part.updates,
            refused=part.refused,
            staleness=part.staleness.mean if part.staleness else None,
            accuracy=part.accuracy,
            budget=told.budgets.get(name),
            updated=log.time_of(log.updated.get(name)),
            answered=log.time_of(log.answered.get(name)),
            waiting=Waiting(kind=task.kind, version=task.version, sent=sent) if task and sent is not None else None,
        )


def _told_by_summary(summary: Summary) -> _Told:
    return _Told(
        standing=Standing(summary.status.value),
        reason=summary.reason,
        version=summary.model_version,
        parts=summary.per_hospital,
        budgets=budgets_of(summary),
        staleness=summary.staleness,
        refused=summary.refused,
        curve=summary.curve,
        basis="the final model on each hospital's own test images",
    )


def _told_by_log(log: RunLog, ids: Sequence[str], budgets: Mapping[str, Budget]) -> _Told:
    curve = [log.curve[version] for version in sorted(log.curve)]
    scored = next((point for point in reversed(curve) if point.hospitals), None)
    ages = log.ages()
    names = {*ids, *log.examples, *log.dispatched, *log.refused_by, *ages, *(scored.hospitals if scored else ())}
    return _Told(
        standing=_standing_of(log),
        reason=log.end.reason if log.end else "",
        version=log.version,
        parts={name: _part_of(name, log, ages.get(name, []), scored) for name in names},
        budgets=budgets,
        staleness=_staleness([age for several in ages.values() for age in several]),
        refused=dict(log.refused),
        curve=curve,
        basis=f"version {scored.version} on each hospital's own validation images" if scored else "",
    )


def _part_of(name: str, log: RunLog, ages: Sequence[int], scored: CurvePoint | None) -> HospitalSummary:
    """Return what the log tells of the hospital `name`."""
    scores = scored.hospitals.get(name) if scored else None
    return HospitalSummary(
        examples=log.examples.get(name, 0),
        dispatched=log.dispatched[name],
        updates=len(ages),
        refused=dict(log.refused_by.get(name, {})),
        accuracy=scores.accuracy if scores else None,
        auroc=scores.auroc if scores else None,
        staleness=_staleness(ages),
    )


def _standing_of(log: RunLog) -> Standing:
    """Return how the run stands by its log; a way to end that nobody knows counts as failed."""
    if log.end is None:
        return Standing.IN_PROGRESS
    return Standing(log.end.status) if log.end.status in set(RunStatus) else Standing.FAILED


def _staleness(ages: Sequence[int]) -> Staleness | None:
    return Staleness(mean=math.fsum(ages) / len(ages), max=max(ages)) if ages else None
