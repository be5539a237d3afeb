"""How far a run has come and who contributed what: the part of the server's state that a checkpoint must keep."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from server_app.spending import Spending
from server_app.summary import CurvePoint


class Contribution(BaseModel):
    """What one hospital was asked and what came of it."""

    model_config = ConfigDict(extra="forbid")

    examples: int = 0
    dispatched: int = 0
    updates: int = 0
    refused: dict[str, int] = Field(default_factory=dict)


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

    def apply(self, hospital_id: str, staleness: int) -> None:
        """Count one applied update."""
        self.updates_applied += 1
        self.staleness_total += staleness
        self.staleness_max = max(self.staleness_max, staleness)
        self.of(hospital_id).updates += 1
