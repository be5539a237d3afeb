"""The `aggregation` table of the run configuration."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from federation.config.table import Table
from federation.identifiers import is_identifier


class AggregationConfig(Table):
    """When the server applies updates, and how much each one weighs."""

    rule: Literal["fedavg", "fedasync", "buffered", "semi-synchronous"] = Field(
        "fedavg",
        description="When updates are applied. `fedavg`: when all sampled hospitals have answered or `deadline-s` has "
        "passed; `fedasync`: each one on arrival; `buffered`: when `buffer-size` have arrived (FedBuff); "
        "`semi-synchronous`: every `period-s` seconds those that have arrived.",
    )
    rounds: int = Field(5, ge=1, description="Model versions to make before the run ends.")
    sample_fraction: float = Field(
        1.0, gt=0, le=1, description="Share of the hospitals sampled per round; otherwise, that work at one time."
    )
    sample_count: int = Field(
        0, ge=0, description="Hospitals sampled per round, or that work at one time; 0 uses `sample-fraction`."
    )
    buffer_size: int = Field(4, ge=1, description="Updates that make a version under `buffered` (K of FedBuff).")
    period_s: float = Field(
        600.0,
        gt=0,
        description="Versions under `semi-synchronous` are made at multiples of so many seconds, if `min-updates` have "
        "arrived, and before when no more can come.",
    )
    max_lead: int = Field(
        0,
        ge=0,
        description="Updates by which a hospital may be ahead of the median hospital before it waits "
        "(a participation quota, not under `fedavg`), which does not help a single straggler: it does not move the "
        "median; 0: any number.",
    )
    release: Literal["immediate", "two-phase"] = Field(
        "immediate",
        description="`two-phase`: a hospital keeps its result until the server says that it is still wanted, so that "
        "one that came too late costs no privacy budget.",
    )
    max_staleness: int = Field(
        20, ge=0, description="Versions that may have passed since a hospital received the model; older is refused."
    )
    staleness: Literal["constant", "exponential", "polynomial", "hinge"] = Field(
        "polynomial",
        description="Staleness factor of an update s versions old: 1; `staleness-alpha`^s; (1 + s)^-`staleness-"
        "exponent`; or 1 up to `staleness-grace` and 1 / (`staleness-slope` x (s - grace) + 1) beyond.",
    )
    staleness_alpha: float = Field(0.95, gt=0, le=1, description="Base of `exponential`; the smaller, the more decay.")
    staleness_exponent: float = Field(0.5, ge=0, le=10, description="Exponent of `polynomial`.")
    staleness_slope: float = Field(10.0, ge=0, le=1e6, description="Slope of `hinge`.")
    staleness_grace: int = Field(4, ge=0, description="Versions without decay under `hinge`.")
    weighting: Literal["examples", "uniform", "sqrt"] = Field(
        "examples", description="Size factor of an update: number of training images, 1, or its square root."
    )
    noise_weighting: bool = Field(
        False,
        description="Weigh updates by the inverse of the noise variance that they declare: the noisier, the less.",
    )
    shifts: str = Field(
        "",
        description="Distribution shift per hospital in [0, 1], for example `hospital-a=0.3,hospital-b=0.1`: an update "
        "weighs 1 - shift. Hospitals that are not named have none.",
    )
    anomaly_threshold: float = Field(
        0.0,
        ge=0,
        description="Robust z-score (median and MAD of recent updates at the same noise level, or at the nearest where "
        "it has few) above which the norm of an update lowers its weight to threshold / z; 0: off. 3.5 is usual.",
    )
    direction_scaling: bool = Field(
        False, description="Weigh an update that points against the last step of the model by 1 + its cosine to it."
    )
    balance: float = Field(
        0.0,
        ge=0,
        le=1,
        description="How far rare updates of slow hospitals are made up for: (mean number of applied updates per "
        "hospital / own number)^`balance`; 0: not, 1: wholly.",
    )
    balance_limit: float = Field(
        4.0,
        ge=1,
        description="Largest factor, and smallest inverse, that `balance` gives; without rounds, also what the updates "
        "of one version weigh at most, in fresh ones of a mean hospital.",
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

    @property
    def is_synchronous(self) -> bool:
        """Whether hospitals work in rounds that all sampled ones share."""
        return self.rule == "fedavg"

    @property
    def shift_by_hospital(self) -> dict[str, float]:
        """The shifts that `shifts` names.

        Raises:
            ValueError: an entry is not `hospital=number` with a number in [0, 1].
        """
        return dict(_parse_shift(part) for part in self.shifts.split(",") if part.strip())

    @field_validator("shifts")
    @classmethod
    def _be_shifts(cls, shifts: str) -> str:
        names = [_parse_shift(part)[0] for part in shifts.split(",") if part.strip()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"Expected one shift per hospital, found several of {', '.join(twice)}.")
        return shifts

    @model_validator(mode="after")
    def _sample_enough(self) -> Self:
        if self.sample_count and self.min_updates > self.sample_count:
            raise ValueError(f"Expected min-updates={self.min_updates} <= sample-count={self.sample_count}.")
        if self.average_last > self.rounds:
            raise ValueError(f"Expected average-last={self.average_last} <= rounds={self.rounds}.")
        if self.deadline_s and not self.is_synchronous:
            raise ValueError(f"Expected deadline-s=0 with rule={self.rule!r}, found {self.deadline_s:g}: no rounds.")
        if self.rule == "buffered" and self.min_updates > self.buffer_size:
            raise ValueError(f"Expected min-updates={self.min_updates} <= buffer-size={self.buffer_size}.")
        if self.rule == "fedasync" and self.min_updates > 1:
            raise ValueError(f"Expected min-updates=1 with rule='fedasync', found {self.min_updates}.")
        if self.deadline_s > self.give_up_s:
            raise ValueError(f"Expected deadline-s={self.deadline_s:g} <= give-up-s={self.give_up_s:g}.")
        return self


def _parse_shift(part: str) -> tuple[str, float]:
    name, _, value = (piece.strip() for piece in part.partition("="))
    try:
        shift = float(value)
    except ValueError:
        shift = -1.0
    if not is_identifier(name) or not 0 <= shift <= 1:
        raise ValueError(f"Expected hospital=shift with a shift in [0, 1], found {part.strip()!r}.")
    return name, shift
