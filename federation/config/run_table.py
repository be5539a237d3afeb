"""The table `run` of the configuration: name, place, seed and length of a run, and what it waits for."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from federation.config.table import Table
from federation.identifiers import IDENTIFIER_RULE, is_identifier


class RunConfig(Table):
    """Name, place, seed and length of a run, and what it waits for."""

    name: str = Field("run", description="Name of the run's folder below `run.root`.")
    root: str = Field("runs", description="Folder of all runs; relative to where the SuperLink was started.")
    seed: int = Field(0, ge=0, description="Seed of a simulation. A deployed hospital ignores it.")
    resume: bool = Field(False, description="Go on from the newest checkpoint of the run with this name.")
    hospitals: int = Field(
        0, ge=0, description="Hospitals to wait for; 0 takes those connected once their number has settled."
    )
    hospital_ids: str = Field(
        "", description="Comma-separated ids of the configured hospitals; empty: those that enrol are the configured."
    )
    min_hospitals: int = Field(1, ge=1, description="Fewest hospitals to start with when `wait-s` has passed.")
    wait_s: float = Field(
        120.0,
        gt=0,
        description="Longest wait in seconds for hospitals at the start, and later for all of them, or the last with "
        "privacy budget, to come back. A task that takes longer, and 1.5 times as long as any before, is overdue.",
    )
    evaluate_every: int = Field(1, ge=0, description="Evaluate every n versions; 0: only at the end.")
    central_evaluation: bool = Field(
        True, description="Evaluate on the server. A simulation tests on the union of the hospitals' test splits."
    )
    hospital_evaluation: bool = Field(
        True,
        description="Ask every hospital for accuracy and AUROC on its own validation split (test split at the end); "
        "they leave exactly without a privacy mechanism; under one, accuracy leaves with noise and AUROC does not.",
    )
    checkpoint_every: int = Field(
        1,
        ge=1,
        description="Make every n-th version durable, and the last. A killed run redoes the versions since, with the "
        "same result if nobody misses `aggregation.deadline-s`; 1 in a deployment, more for fast sweeps.",
    )
    keep_checkpoints: int = Field(2, ge=1, description="Newest checkpoints that are kept.")
    allow_silent_hospitals: bool = Field(
        False, description="Count the run as good even when a configured hospital contributed nothing."
    )

    @field_validator("name")
    @classmethod
    def _be_one_folder(cls, name: str) -> str:
        if not is_identifier(name):
            raise ValueError(f"Expected {IDENTIFIER_RULE}, found {name!r}.")
        return name

    @field_validator("hospital_ids")
    @classmethod
    def _be_identifiers(cls, names: str) -> str:
        wrong = [part for part in (piece.strip() for piece in names.split(",")) if part and not is_identifier(part)]
        if wrong:
            raise ValueError(f"Expected ids of {IDENTIFIER_RULE}, found {wrong}.")
        return names

    @model_validator(mode="after")
    def _expect_no_more_than_there_are(self) -> Self:
        if self.hospitals and self.min_hospitals > self.hospitals:
            raise ValueError(f"Expected min-hospitals={self.min_hospitals} <= hospitals={self.hospitals}.")
        if self.hospitals and len(self.configured_ids) > self.hospitals:
            raise ValueError(f"Expected at most hospitals={self.hospitals} hospital-ids, found {self.configured_ids}.")
        return self

    @property
    def configured_ids(self) -> tuple[str, ...]:
        """The configured hospital ids in sorted order, without blanks; empty when none are named."""
        return tuple(sorted({part.strip() for part in self.hospital_ids.split(",") if part.strip()}))
