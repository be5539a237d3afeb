"""The `aggregation` table of the run configuration."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from federation.config.table import Table


class AggregationConfig(Table):
    """When the server applies updates, and how much each one weighs."""

    rule: Literal["fedavg"] = Field("fedavg", description="`fedavg`: apply when all sampled hospitals have answered.")
    rounds: int = Field(5, ge=1, description="Model versions to make before the run ends.")
    sample_fraction: float = Field(1.0, gt=0, le=1, description="Share of the hospitals sampled per round.")
    sample_count: int = Field(0, ge=0, description="Hospitals sampled per round; 0 uses `sample-fraction`.")
    weighting: Literal["examples", "uniform", "sqrt"] = Field(
        "examples", description="Size factor of an update: number of training images, 1, or its square root."
    )
    server_optimizer: Literal["average", "momentum", "adam"] = Field(
        "average",
        description="What moves the model by the mean update: `average` adds it (FedAvg); `momentum`: FedAvgM; `adam`: "
        "FedAdam.",
    )
    server_learning_rate: float = Field(
        1.0, gt=0, le=1e6, description="Server learning rate; `adam` usually wants 0.01 to 0.1."
    )
    server_momentum: float = Field(
        0.9, ge=0, lt=1, description="Momentum of `momentum`, and beta1 of `adam`; ignored by `average`."
    )
    server_beta2: float = Field(0.99, ge=0, lt=1, description="Decay of the second moment of `adam`.")
    server_adaptivity: float = Field(
        1e-3, gt=0, le=1e6, description="Tau of `adam`: added to the root of the second moment; larger adapts less."
    )
    average_last: int = Field(
        0,
        ge=0,
        description="The last version becomes the mean of the last n versions, which takes noise out of it; 0: it "
        "stays as it is.",
    )
    deadline_s: float = Field(0.0, ge=0, description="Longest round in seconds; 0 waits for every sampled hospital.")
    min_updates: int = Field(1, ge=1, description="Fewest accepted updates that make a new version.")
    give_up_s: float = Field(
        86400.0,
        gt=0,
        description="Seconds after which a task without an answer is given up and its hospital may be asked again.",
    )
    max_empty_rounds: int = Field(3, ge=1, description="Rounds in a row without enough updates before the run fails.")

    @model_validator(mode="after")
    def _sample_enough(self) -> Self:
        if self.sample_count and self.min_updates > self.sample_count:
            raise ValueError(f"Expected min-updates={self.min_updates} <= sample-count={self.sample_count}.")
        if self.average_last > self.rounds:
            raise ValueError(f"Expected average-last={self.average_last} <= rounds={self.rounds}.")
        if self.deadline_s > self.give_up_s:
            raise ValueError(f"Expected deadline-s={self.deadline_s:g} <= give-up-s={self.give_up_s:g}.")
        return self
