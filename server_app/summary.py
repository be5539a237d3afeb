"""The result of a run as data: what `summary.json` holds and what the report is drawn from."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from federation.metrics import Scores


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunStatus(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


class CurvePoint(_Part):
    """One evaluation during a run.

    Attributes:
        version: model version that was evaluated.
        elapsed_s: seconds since the start of the run on its clock (virtual in a simulation by virtual clock).
        central: scores on the server's test images, if it has any.
        hospitals: scores per hospital id on the hospital's own images.
    """

    version: int
    elapsed_s: float
    central: Scores | None
    hospitals: dict[str, Scores]


class LedgerSummary(_Part):
    """The server's mirror of what one hospital has released of its training images under a mechanism.

    Attributes:
        mechanism: "dp-sgd" or "update-gaussian".
        relation: which data sets are neighbours.
        unit: whose presence is protected: "record", "patient" or "update".
        delta: at which every epsilon here is counted.
        account: the account that binds at the hospital.
        releases: of this run, as declared.
        spent: epsilon by the binding account that the hospital says it has spent, earlier runs included.
        cap: epsilon that the hospital will spend at most.
        linear: epsilon of this run's declared events, summed.
        rdp: the same by Renyi DP.
        pld: the same by privacy loss distributions.
        uncovered: releases of the same images that epsilon does not cover; above 0, none holds.
        paused: whether the budget leaves no room for another update.
        contradictions: answers whose declarations were refused.
    """

    mechanism: str
    relation: str
    unit: str
    delta: float
    account: str
    releases: int
    spent: float
    cap: float
    linear: float
    rdp: float
    pld: float
    uncovered: int
    paused: bool
    contradictions: int

    @property
    def claimable(self) -> bool:
        """Whether `spent` bounds everything released: not after a release beside it, or a refused declaration."""
        return not self.uncovered and not self.contradictions

    @property
    def left(self) -> float:
        """Epsilon that is left under the cap."""
        return max(0.0, self.cap - self.spent)


class ScoresSummary(_Part):
    """The mirror of what one hospital has told about its scores on one split, under a mechanism.

    Attributes:
        releases: of this run, as declared.
        epsilon: that the hospital says it has spent on the split, earlier runs included; for one image.
        delta: at which it is counted.
        uncovered: scores of the split that epsilon does not cover; above 0, none holds.
    """

    releases: int
    epsilon: float
    delta: float
    uncovered: int


class Staleness(_Part):
    """Versions that passed between dispatch and application of the applied updates."""

    mean: float
    max: int


class HospitalSummary(_Part):
    """What one configured hospital contributed and how well the final model serves it.

    Attributes:
        examples: training images it declared; 0 when it never enrolled.
        dispatched: training tasks it was sent.
        updates: updates of it that were applied.
        refused: reasons and counts of its answers that were not used; `evaluation:` marks those that are no updates.
        accuracy: of the final model on its own test images; None when not evaluated.
        auroc: as `accuracy`.
        epsilon_spent: privacy loss so far; None when no mechanism gives one.
        delta: the delta of `epsilon_spent`.
        benefit_per_epsilon: accuracy that the newest evaluated version has above the initial one, both on the
            hospital's validation images (and noised) where it answered twice, else both on the server's images, per
            epsilon spent; None without epsilon.
        ledger: the mirror of its ledger; None without a mechanism.
        scores: the same for each split whose scores it told; empty without a mechanism.
        weight_share: its part of the weight of all applied updates, what the model holds of it; None when none was.
        size_share: the part that it would have if all answered equally often and nothing but `aggregation.weighting`
            counted; None when it never enrolled.
        staleness: of its applied updates; None when none was.
        factors: mean over its applied updates of each factor of their weight, by name; those that were 1 in the whole
            run are left out.
        discarded: results that it threw away unreleased, because they came too late; part of `refused`.
    """

    examples: int
    dispatched: int
    updates: int
    refused: dict[str, int]
    accuracy: float | None
    auroc: float | None
    epsilon_spent: float | None = None
    delta: float | None = None
    benefit_per_epsilon: float | None = None
    ledger: LedgerSummary | None = None
    scores: dict[str, ScoresSummary] = Field(default_factory=dict)
    weight_share: float | None = None
    size_share: float | None = None
    staleness: Staleness | None = None
    factors: dict[str, float] = Field(default_factory=dict)
    discarded: int = 0


class Summary(_Part):
    """Everything `summary.json` holds (DESIGN section 7).

    Attributes:
        run: name of the run.
        engine: `flower` or `virtual`.
        status: how it ended.
        reason: why it failed or stopped, in one sentence; empty when completed.
        updates_applied: accepted updates that went into the model.
        model_version: version of the final model; 0 is the initial model.
        final: scores of the final model on the server's test images, if it has any.
        per_hospital: every configured hospital, also those that contributed nothing.
        worst_hospital: id with the lowest final accuracy, or None when none was evaluated.
        silent_hospitals: configured hospitals of which no update was applied.
        staleness: of the applied updates; None when none was.
        refused: reasons and counts over all hospitals and unknown senders.
        bytes_up: payload bytes received from hospitals.
        bytes_down: payload bytes sent to hospitals.
        wall_s: seconds of real time.
        virtual_s: seconds on the virtual clock; None outside it.
        resumed: how often the run was continued from a checkpoint.
        curve: evaluations in order.
        guarantees: what the run guarantees and what it does not, one sentence each.
        configuration: the resolved flat configuration.
    """

    run: str
    engine: str
    status: RunStatus
    reason: str = ""
    updates_applied: int
    model_version: int
    final: Scores | None
    per_hospital: dict[str, HospitalSummary]
    worst_hospital: str | None
    silent_hospitals: list[str]
    staleness: Staleness | None
    refused: dict[str, int]
    bytes_up: int
    bytes_down: int
    wall_s: float
    virtual_s: float | None
    resumed: int = 0
    curve: list[CurvePoint]
    guarantees: list[str]
    configuration: dict[str, str | int | float | bool] = Field(repr=False)
