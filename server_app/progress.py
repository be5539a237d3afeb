"""How far a run has come and who contributed what: the part of the server's state that a checkpoint must keep."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from federation.metrics import Scores
from server_app.aggregation.norm_history import NormHistory
from server_app.roster import Member
from server_app.spending import Spending
from server_app.summary import CurvePoint


class Contribution(BaseModel):
    """What one hospital was asked and what came of it.

    Attributes:
        examples: training images it says it has.
        dispatched: training tasks it was sent.
        updates: updates of it that were applied.
        weight: sum of the coefficients with which they were.
        staleness_total: sum of the versions that had passed since their dispatch.
        staleness_max: largest of these.
        factors: sum over the applied updates of every factor that weighed them, by name.
        discarded: results that it was asked to throw away before it had released anything.
        refused: reasons and counts of its answers that were not used.
    """

    model_config = ConfigDict(extra="forbid")

    examples: int = 0
    dispatched: int = 0
    updates: int = 0
    weight: float = 0.0
    staleness_total: int = 0
    staleness_max: int = 0
    factors: dict[str, float] = Field(default_factory=dict)
    discarded: int = 0
    refused: dict[str, int] = Field(default_factory=dict)


class OpenTask(BaseModel):
    """A task that had not been answered when the checkpoint was written.

    Attributes:
        number: of the task.
        hospital_id: who was asked.
        kind: "train", "train.release", "train.discard" or "evaluate".
        version: of the model that the hospital works on.
        split: what an evaluation is asked to score.
        sent_at: the run's time when it was sent, in seconds.
        began_at: of a release or discard: when the training task before it was sent.
    """

    model_config = ConfigDict(extra="forbid")

    number: int
    hospital_id: str
    kind: str
    version: int
    split: str
    sent_at: float
    began_at: float


class OpenEvaluation(BaseModel):
    """An evaluation whose answers have not all come.

    Attributes:
        version: that is evaluated.
        split: on which.
        opened_at: the run's time when it was opened, in seconds.
        central: scores on the server's images.
        hospitals: scores that have come.
        wanted: hospitals that will be asked when they become free.
        asked: hospitals that have been asked and have not answered.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    split: str
    opened_at: float = 0.0
    central: Scores | None = None
    hospitals: dict[str, Scores] = Field(default_factory=dict)
    wanted: list[str] = Field(default_factory=list)
    asked: list[str] = Field(default_factory=list)


class Progress(BaseModel):
    """Counters and curve of a run; changed by the engine only, saved with every version.

    Attributes:
        model_version: versions made so far.
        rounds: rounds closed so far, those without a new version included.
        empty_rounds: rounds without a new version since the last one.
        updates_applied: updates that went into them.
        staleness_total: sum over applied updates of the versions that passed since their dispatch.
        staleness_max: largest of these.
        elapsed_s: seconds on the run's clock, earlier sessions of a resumed run included.
        wall_s: seconds of real time, likewise.
        bytes_up: payload bytes received.
        bytes_down: payload bytes sent.
        resumed: how often the run was continued.
        tasks: tasks sent so far; the last one's number.
        in_flight: those of them that had not been answered at the checkpoint, decisions that are owed included.
        waiting: numbers of the tasks whose updates were accepted, and booked in `spending`, but in no version yet.
        consumed: numbers of the tasks whose updates made the newest version.
        norms: recent norms of updates per noise level.
        longest_task_s: longest time that a training task took from dispatch to answer.
        least_variance: least noise variance that was declared; None before any.
        evaluation: the one that is open.
        roster: the hospitals that have enrolled, each with the node that speaks for it.
        contributions: per hospital id.
        spending: per hospital id and split ("training", "validation", "test"), what it declared about privacy.
        refused: reasons and counts over all senders, known or not.
        curve: evaluations in order.
    """

    model_config = ConfigDict(extra="forbid")

    model_version: int = 0
    rounds: int = 0
    empty_rounds: int = 0
    updates_applied: int = 0
    staleness_total: int = 0
    staleness_max: int = 0
    elapsed_s: float = 0.0
    wall_s: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    resumed: int = 0
    tasks: int = 0
    in_flight: list[OpenTask] = Field(default_factory=list)
    waiting: list[int] = Field(default_factory=list)
    consumed: list[int] = Field(default_factory=list)
    norms: NormHistory = Field(default_factory=NormHistory)
    longest_task_s: float = 0.0
    least_variance: float | None = None
    evaluation: OpenEvaluation | None = None
    roster: dict[str, Member] = Field(default_factory=dict)
    contributions: dict[str, Contribution] = Field(default_factory=dict)
    spending: dict[str, dict[str, Spending]] = Field(default_factory=dict)
    refused: dict[str, int] = Field(default_factory=dict)
    curve: list[CurvePoint] = Field(default_factory=list)

    def of(self, hospital_id: str) -> Contribution:
        """Return the contribution of `hospital_id`, an empty one if it is new."""
        return self.contributions.setdefault(hospital_id, Contribution())

    def spending_of(self, hospital_id: str, split: str) -> Spending:
        """Return the mirror's entry for one split of `hospital_id`, an empty one if it is new."""
        return self.spending.setdefault(hospital_id, {}).setdefault(split, Spending())

    def refuse(self, reason: str, hospital_id: str | None) -> None:
        """Count one refusal, also against its hospital if that is known."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        if hospital_id is not None:
            mine = self.of(hospital_id).refused
            mine[reason] = mine.get(reason, 0) + 1

    def apply(self, hospital_id: str, staleness: int, coefficient: float, factors: Mapping[str, float]) -> None:
        """Count one applied update, how old it was, and what it weighed by which factors."""
        self.updates_applied += 1
        self.staleness_total += staleness
        self.staleness_max = max(self.staleness_max, staleness)
        mine = self.of(hospital_id)
        mine.updates += 1
        mine.weight += coefficient
        mine.staleness_total += staleness
        mine.staleness_max = max(mine.staleness_max, staleness)
        for name, factor in factors.items():
            mine.factors[name] = mine.factors.get(name, 0.0) + factor
