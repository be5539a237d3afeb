"""What the event log of a run tells so far, kept up to date line by line.

A run that was resumed goes on from its newest checkpoint: versions after it are made anew, and what the log says of
their first making no longer counts. Read next: `runs`, which joins this with what else lies in the run's folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.coordinator.event_log import AppliedUpdate, Event, EventLog
from federation.errors import RefusalCode
from federation.metrics import Scores
from server_app.summary import CurvePoint

_NO_ANSWER = (RefusalCode.NODE_LOST.value, RefusalCode.INTERRUPTED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When something happened: seconds since a session of the run opened the log."""

    session: int
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTask:
    """A task that its hospital has not answered."""

    kind: str
    version: int
    sent: Moment


class RunLog:
    """The state of one run by its event log.

    Attributes:
        version: newest model version.
        sessions: how often the run was started or resumed.
        steps: hospital and staleness of every update in every version.
        refused: reasons and counts.
        refused_by: the same by hospital, for those known.
        examples: training images that every enrolled hospital declared.
        dispatched: training tasks sent, by hospital.
        curve: evaluations by version.
        answered: when every hospital last sent anything.
        updated: when the last update of every hospital was accepted.
        open: what every hospital is working on.
        longest_task_s: longest time from a training task to its answer.
        end: the last event of a run that has ended; None while it goes on.
        damaged: lines that are no event.
    """

    def __init__(self, path: Path) -> None:
        """Follow the log at `path`."""
        self._log = EventLog(path)
        self._clear()
        self._handlers: Mapping[str, Callable[[Event], None]] = {
            "start": self._begin,
            "resume": self._begin,
            "enrol": self._enrol,
            "dispatch": self._dispatch,
            "update": self._update,
            "ready": self._hear,
            "refusal": self._refuse,
            "apply": self._apply,
            "evaluate": self._evaluate,
            "late-scores": self._add_late_scores,
            "pause": self._hear,
            "finish": self._finish,
        }

    def _clear(self) -> None:
        self.version = 0
        self.sessions = 0
        self.steps: dict[int, tuple[AppliedUpdate, ...]] = {}
        self.refused: Counter[str] = Counter()
        self.refused_by: dict[str, Counter[str]] = {}
        self.examples: dict[str, int] = {}
        self.dispatched: Counter[str] = Counter()
        self.curve: dict[int, CurvePoint] = {}
        self.answered: dict[str, Moment] = {}
        self.updated: dict[str, Moment] = {}
        self.open: dict[str, OpenTask] = {}
        self.longest_task_s = 0.0
        self.end: Event | None = None
        self.damaged = 0
        self._opened: dict[int, float] = {}
        self._lasted: dict[int, float] = {}

    def read_on(self) -> None:
        """Take in what was written since the last time.

        Raises:
            OSError: the log cannot be read.
        """
        with self._log.look() as reading:
            if reading.anew:
                self._clear()
            for event in reading.events:
                if event is None:
                    self.damaged += 1
                else:
                    self._take(event)
        if reading.modified is not None:
            self._place_in_time(reading.modified)

    @property
    def newest(self) -> float | None:
        """When the last event happened, in seconds since 1970; None before any."""
        return self.time_of(Moment(session=self.sessions, wall_s=self._lasted.get(self.sessions, 0.0)))

    def time_of(self, moment: Moment | None) -> float | None:
        """Return `moment` in seconds since 1970, for an earlier session at the latest; None where it is not known."""
        if moment is None or moment.session not in self._opened:
            return None
        return self._opened[moment.session] + moment.wall_s

    def ages(self) -> dict[str, list[int]]:
        """Return the staleness of every applied update, by hospital."""
        found: dict[str, list[int]] = {}
        for rows in self.steps.values():
            for row in rows:
                found.setdefault(row.hospital, []).append(row.staleness)
        return found

    def _place_in_time(self, modified: float) -> None:
        """Note when each session began: the log was last written to with its last event, and sessions never overlap."""
        if not self.sessions:
            return
        self._opened[self.sessions] = modified - self._lasted[self.sessions]
        for session in range(self.sessions - 1, 0, -1):
            self._opened.setdefault(session, self._opened[session + 1] - self._lasted[session])

    def _take(self, event: Event) -> None:
        handle = self._handlers.get(event.event)
        if handle is not None:
            handle(event)
        self.sessions = max(1, self.sessions)
        self._lasted[self.sessions] = event.wall_s

    def _begin(self, event: Event) -> None:
        self.sessions += 1
        self.version = event.version
        self.steps = {key: rows for key, rows in self.steps.items() if key <= event.version}
        self.curve = {key: point for key, point in self.curve.items() if key <= event.version}
        self.open.clear()
        self.end = None

    def _now(self, event: Event) -> Moment:
        return Moment(session=self.sessions, wall_s=event.wall_s)

    def _settle(self, hospital: str, event: Event) -> None:
        """Note that `hospital` has answered, and if it had been asked to train, how long that took."""
        self.answered[hospital] = self._now(event)
        task = self.open.pop(hospital, None)
        if task is not None and task.kind == "train":
            self.longest_task_s = max(self.longest_task_s, event.wall_s - task.sent.wall_s)

    def _enrol(self, event: Event) -> None:
        if event.hospital is not None:
            self.examples[event.hospital] = event.examples
            self.answered[event.hospital] = self._now(event)

    def _dispatch(self, event: Event) -> None:
        if event.hospital is None or event.task == "train.discard":
            return
        self.open[event.hospital] = OpenTask(kind=event.task, version=event.version, sent=self._now(event))
        self.dispatched[event.hospital] += event.task == "train"

    def _update(self, event: Event) -> None:
        if event.hospital is None:
            return
        self._settle(event.hospital, event)
        self.updated[event.hospital] = self._now(event)

    def _hear(self, event: Event) -> None:
        if event.hospital is not None:
            self._settle(event.hospital, event)

    def _refuse(self, event: Event) -> None:
        self.refused[event.reason] += 1
        if event.hospital is None:
            return
        self.refused_by.setdefault(event.hospital, Counter())[event.reason] += 1
        if event.reason.rpartition(":")[2] in _NO_ANSWER:
            self.open.pop(event.hospital, None)
        else:
            self._settle(event.hospital, event)

    def _apply(self, event: Event) -> None:
        self.version = event.version
        self.steps[event.version] = event.updates

    def _evaluate(self, event: Event) -> None:
        self.curve[event.version] = CurvePoint(
            version=event.version, elapsed_s=event.wall_s, central=event.central, hospitals=event.hospitals
        )
        for hospital in event.hospitals:
            task = self.open.get(hospital)
            if task is not None and (task.kind, task.version) == ("evaluate", event.version):
                self._settle(hospital, event)

    def _add_late_scores(self, event: Event) -> None:
        if event.hospital is None or event.accuracy is None:
            return
        self._settle(event.hospital, event)
        point = self.curve.get(event.version)
        if point is not None and event.split == "validation":
            late = Scores(accuracy=event.accuracy, auroc=event.auroc, loss=event.loss, examples=event.examples)
            self.curve[event.version] = point.model_copy(
                update={"hospitals": {**point.hospitals, event.hospital: late}}
            )

    def _finish(self, event: Event) -> None:
        self.end = event
        self.open.clear()
