"""The `privacy` table of the run configuration: what the server asks for. What a hospital grants is its own policy."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from federation.config.layer_shares import parse_layer_shares
from federation.config.table import Table
from federation.errors import ConfigurationError

MechanismName = Literal["none", "dp-sgd", "update-gaussian"]
AccountName = Literal["linear", "rdp", "pld"]


class PrivacyConfig(Table):
    """What every update is protected by, as the server asks for it; a hospital's site policy may only be stricter."""

    mechanism: MechanismName = Field(
        "none",
        description="`none`; `dp-sgd`: every image's (or patient's) gradient is clipped and noise is added in each "
        "local step; `update-gaussian`: the whole update is clipped and noised once.",
    )
    epsilon: float = Field(
        8.0,
        gt=0,
        description="Epsilon that one hospital may spend on its data in a run, over all releases. To a deployed "
        "hospital a resumed run is a new one: it plans and counts anew, and only the cap of its own policy bounds both "
        "together; the server goes on counting what has arrived.",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="Delta of that epsilon; at or above 1/images it is a warning.")
    releases: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Updates per hospital over which epsilon is planned; 0: `aggregation.rounds`.",
    )
    account: Literal["default", "linear", "rdp", "pld"] = Field(
        "default",
        description="Which account binds: the sum of epsilons, Renyi DP, or privacy loss distributions. `default`: "
        "`linear` for `update-gaussian`, `pld` for `dp-sgd`. The stricter of this and the site policy's wins.",
    )
    schedule: Literal["constant", "remaining"] = Field(
        "constant",
        description="`constant`: the same noise in every release; `remaining`: each release is calibrated to what is "
        "left of the budget over what is left of the planned releases.",
    )
    noise_multiplier: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="Standard deviation of the noise over the sensitivity; 0 derives it from epsilon, delta and the "
        "planned releases, each hospital for itself.",
    )
    release_epsilon: float = Field(
        0.0,
        ge=0,
        description="Under `update-gaussian`, epsilon of each single release at `delta`; 0 derives it from the whole. "
        "The linear account charges the classic formula's epsilon whatever the calibration.",
    )
    calibration: Literal["analytic", "classic"] = Field(
        "analytic",
        description="How `release-epsilon` becomes noise: the analytic Gaussian mechanism, or the classic formula, "
        "which is proven for epsilon <= 1 only and refused above.",
    )
    clip_norm: float = Field(1.0, gt=0, le=1e6, description="Clip norm C: L2, per image or patient, or per update.")
    unit: Literal["record", "patient"] = Field(
        "record", description="Under `dp-sgd`, who is protected: one image, or one patient (needs patient ids)."
    )
    images_per_patient: int = Field(
        1, ge=1, le=10_000, description="Most images that one patient contributes to a step under `unit = patient`."
    )
    relation: Literal["zero-out", "replace-one"] = Field(
        "zero-out",
        description="Under `update-gaussian`, what neighbours differ in: the update or nothing (sensitivity C), or "
        "one update or any other (2C).",
    )
    layer_shares: str = Field(
        "",
        description="Under `update-gaussian`, groups of layers and their shares of the budget, for example "
        "`output.*=0.8, *=0.2`; empty: the update is one group. The first group that fits takes a layer.",
    )
    grad_sample: Literal["hooks", "ghost"] = Field(
        "hooks", description="How `dp-sgd` gets gradients per image: Opacus hooks, or ghost clipping (less memory)."
    )
    physical_batch: int = Field(
        256,
        ge=1,
        le=65536,
        description="Most images at once in memory under `dp-sgd`; a logical batch may be larger.",
    )
    augmentation_multiplicity: int = Field(
        1, ge=1, le=64, description="Augmented copies of an image whose gradients are averaged before clipping."
    )
    evaluation_noise_multiplier: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="Under a mechanism, noise on the number of correct answers that a hospital tells, over its "
        "sensitivity of 1; each answer is booked, and AUROC stays at home. 0 derives it from epsilon, delta and the "
        "number of evaluations.",
    )
    noise_source: Literal["by-site", "cryptographic", "simulated"] = Field(
        "by-site",
        description="`by-site`: seeded noise at simulated hospitals, the operating system's at deployed ones; a "
        "deployed hospital refuses `simulated`.",
    )

    @field_validator("layer_shares")
    @classmethod
    def _sum_to_one(cls, text: str) -> str:
        try:
            parse_layer_shares(text)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return text

    @model_validator(mode="after")
    def _be_possible(self) -> Self:
        if self.calibration == "classic" and not 0 < self.release_epsilon <= 1:
            raise ValueError(
                f"Expected 0 < release-epsilon={self.release_epsilon:g} <= 1 with calibration = 'classic', whose proof "
                "holds there only: use 'analytic'."
            )
        if self.release_epsilon and self.noise_multiplier:
            raise ValueError("Expected release-epsilon or noise-multiplier, found both: leave one at 0.")
        if self.release_epsilon and self.mechanism == "dp-sgd":
            raise ValueError("Expected no release-epsilon under dp-sgd: set epsilon, or noise-multiplier.")
        grouped = self.augmentation_multiplicity > 1 or (self.unit == "patient" and self.images_per_patient > 1)
        if self.grad_sample == "ghost" and grouped:
            raise ValueError(
                "Expected grad-sample = 'hooks' where several gradients are averaged before clipping "
                "(augmentation-multiplicity or images-per-patient above 1): ghost clipping cannot."
            )
        return self

    @property
    def account_name(self) -> AccountName:
        """The account that binds unless a site policy names another."""
        return default_account(self.mechanism) if self.account == "default" else self.account


def default_account(mechanism: MechanismName) -> AccountName:
    """Return the account that binds for `mechanism` unless another is named."""
    return "pld" if mechanism == "dp-sgd" else "linear"
