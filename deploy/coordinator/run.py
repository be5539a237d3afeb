"""One run as a coordinator sees it. Read next: `run_reader`, where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from deploy.coordinator.budgets import Budget
from server_app.summary import CurvePoint, RunStatus


class Standing(StrEnum):
    """How a run stands; the last three as `RunStatus`."""

    IN_PROGRESS = "in progress"
    COMPLETED = RunStatus.COMPLETED.value
    FAILED = RunStatus.FAILED.value
    STOPPED = RunStatus.STOPPED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A task that a hospital has not answered.

    Attributes:
        kind: "train", "train.release" or "evaluate".
        version: of the model that it is about.
        sent: when it was sent, in seconds since 1970.
    """

    kind: str
    version: int
    sent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """One hospital in one run.

    Attributes:
        hospital: its id.
        examples: training images that it declared; 0 when it has not enrolled.
        dispatched: training tasks that it was sent.
        updates: of it that were applied.
        refused: reasons and counts of its answers that were not used.
        staleness: mean over its applied updates, in versions; None when none was.
        accuracy: of the model on its own images; `Run.basis` says which. None when not known.
        budget: of privacy; None without a mechanism.
        updated: when its last update was accepted, in seconds since 1970; None when none was.
        answered: when it last sent anything, likewise.
        waiting: what it has not answered; None when nothing.
    """

    hospital: str
    examples: int
    dispatched: int
    updates: int
    refused: Mapping[str, int]
    staleness: float | None
    accuracy: float | None
    budget: Budget | None
    updated: float | None
    answered: float | None
    waiting: Waiting | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    Attributes:
        name: of its folder.
        standing: how it stands.
        reason: why it failed or stopped; empty when it did not.
        newest: when its last event was written, in seconds since 1970; None when not known.
        version: newest model version.
        rounds: versions that are planned; None when not known.
        participants: every hospital that is configured, has enrolled or was asked, in natural order.
        staleness: mean over all applied updates, in versions; None when none was.
        stalest: largest of them.
        refused: reasons and counts over all senders.
        curve: evaluations in order of versions.
        accuracy: on the server's images, of the newest version evaluated on them; None when none was.
        worst: hospital with the lowest accuracy; None when none was evaluated.
        basis: what the accuracies of hospitals are of; empty when there are none.
        patience_s: how long a task may take before it is overdue, by the server's own rule.
        doubts: what could not be read, a sentence each.
    """

    name: str
    standing: Standing
    reason: str
    newest: float | None
    version: int
    rounds: int | None
    participants: tuple[Participant, ...]
    staleness: float | None
    stalest: int
    refused: Mapping[str, int]
    curve: tuple[CurvePoint, ...]
    accuracy: float | None
    worst: Participant | None
    basis: str
    patience_s: float
    doubts: tuple[str, ...]

    @property
    def updates(self) -> int:
        """Updates that were applied."""
        return sum(item.updates for item in self.participants)
