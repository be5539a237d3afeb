"""The tables of the run configuration: every key, its type, its bounds, its default and what it does.

`docs/configuration.md` is generated from this file, so each field's description is written for its reader. TOML knows
no null: an empty string or a zero says "not set" where a description says so. Defaults stand here and nowhere else.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from federation.config.aggregation_table import AggregationConfig
from federation.config.guard_table import GuardConfig
from federation.config.masking_table import MaskingConfig
from federation.config.privacy_table import PrivacyConfig
from federation.config.record_table import RecordConfig
from federation.config.run_table import RunConfig
from federation.config.table import Table

_SMALLEST_RATE = 1e-12
_PRIOR_TOLERANCE = 1e-3


class DataConfig(Table):
    """Which images, and how a simulation divides them among hospitals."""

    name: str = Field(
        "phantom",
        description="`phantom` (built in), a 2-D MedMNIST name such as `pneumoniamnist`, `folder` (one subfolder per "
        "class with PNG or JPEG files), `npz` (MedMNIST layout, or `images` and `labels`) or `adult` (a table: the UCI "
        "census files or one CSV file with their columns; for the model `mlp`).",
    )
    root: str = Field(
        "",
        description="Absolute folder (or NPZ or CSV file) with the data. Empty: MedMNIST is downloaded by the medmnist "
        "package into its own folder. A deployed hospital reads what its site policy names instead.",
    )
    partition: Literal["iid", "dirichlet", "classes", "quantity", "by-file"] = Field(
        "dirichlet",
        description="How a simulation divides the data. `by-file`: each subfolder (or NPZ file) of `data.root` is one "
        "hospital; a deployed hospital always reads its own folder whole.",
    )
    seed: int = Field(
        -1, ge=-1, description="Seed of the phantom images, of splits and of the partition; -1 follows `run.seed`."
    )
    dirichlet_alpha: float = Field(
        0.5, gt=0, description="Concentration of `dirichlet`: the smaller, the more each hospital differs in classes."
    )
    classes_per_hospital: int = Field(5, ge=1, description="Most classes that one hospital holds under `classes`.")
    quantity_exponent: float = Field(
        1.0, ge=0, description="Under `quantity`, hospital k gets a share proportional to 1/(k+1)^exponent."
    )
    min_examples: int = Field(1, ge=1, description="Fewest images every hospital must get in each of its three splits.")
    validation_fraction: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Share held out for validation where the data brings no split of its own. A deployed hospital "
        "holds out what its site policy says instead.",
    )
    test_fraction: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="Share held out for testing where the data brings no split of its own. A deployed hospital "
        "holds out what its site policy says instead.",
    )
    site_shift: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Strength of a fixed intensity shift (gain and offset) per simulated hospital, as different "
        "scanners would give; 0 leaves the images alone.",
    )
    features: Literal["none", "wavelet"] = Field(
        "none",
        description="`wavelet`: in place of pixels, fixed wavelet features of each grey image, 24 channels at a "
        "quarter of its size; computed once, by public filters. For `model.name = linear`.",
    )
    phantom_examples: int = Field(3000, ge=60, description="Images that `phantom` makes, all hospitals together.")
    phantom_classes: int = Field(4, ge=2, le=8, description="Classes of `phantom`.")
    phantom_difficulty: float = Field(
        0.4, ge=0, le=1, description="0: lesions are obvious; 1: nearly drowned in noise."
    )

    @model_validator(mode="after")
    def _leave_something_to_train_on(self) -> Self:
        check_fractions(validation=self.validation_fraction, test=self.test_fraction)
        return self


def check_fractions(*, validation: float, test: float) -> None:
    """Check that the two shares held out leave something to train on.

    Raises:
        ValueError: they do not.
    """
    if validation + test >= 1:
        raise ValueError(f"Expected validation-fraction + test-fraction = {validation + test:g} < 1.")


class ModelConfig(Table):
    """Which network is trained; input shape and number of classes come from the data."""

    name: Literal["cnn", "mlp", "linear", "resnet18"] = Field(
        "cnn",
        description="`cnn`: three convolutions and a 512-unit layer; `mlp`: one hidden layer; `linear`: one layer "
        "without bias on normalized inputs, for fixed features; `resnet18`: 28-pixel stem and GroupNorm, so that no "
        "batch statistics are shared.",
    )
    hidden_units: int = Field(64, ge=1, le=65536, description="Width of the hidden layer of `mlp`.")


class TrainingConfig(Table):
    """What a hospital does with a model it receives."""

    optimizer: Literal["sgd", "adam", "adamw"] = Field("adam", description="Local optimizer; its state never leaves.")
    learning_rate: float = Field(1e-3, gt=0, description="Local learning rate.")
    learning_rate_decay: float = Field(
        1.0, gt=0, le=1, description="Factor on the learning rate per model version; 1 keeps it constant."
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of `sgd`; ignored by the others.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay.")
    local_epochs: int = Field(1, ge=1, le=1000, description="Passes over the training split per update (E).")
    batch_size: int = Field(64, ge=1, le=65536, description="Images per local step (B); the last may have fewer.")
    augmentation: Literal["none", "shift", "shift-flip"] = Field(
        "none",
        description="`shift`: random translation by up to two pixels; `shift-flip`: also mirrored left to right.",
    )
    label_skew: Literal["none", "logit-adjustment"] = Field(
        "none",
        description="`logit-adjustment`: train on logits shifted by the hospital's own log class frequencies, so that "
        "a hospital which sees few classes does not pull the model towards them; not for several labels per image.",
    )
    class_prior: str = Field(
        "",
        description="Public class frequencies, for example `0.26,0.74`: training shifts the logits by their logs, so "
        "that the model predicts as if classes were equally frequent. Never counted from a hospital's own labels.",
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="Where to train; `auto` takes CUDA, then MPS, then the CPU."
    )
    threads: int = Field(
        1,
        ge=0,
        le=1024,
        description="CPU threads per training task. The number changes float rounding, so a fixed one keeps results "
        "identical between engines and machines; 0 leaves torch's own choice.",
    )

    precision: Literal["full", "mixed"] = Field(
        "full",
        description="`mixed`: networks compute in bfloat16 where that is safe, parameters stay float32; on a "
        "recent CPU up to twice as fast. Not with `dp-sgd`.",
    )

    @model_validator(mode="after")
    def _have_one_prior(self) -> Self:
        prior = self.public_prior
        if prior and (min(prior) <= 0 or abs(sum(prior) - 1) > _PRIOR_TOLERANCE):
            raise ValueError(f"Expected class-prior={self.class_prior!r} as positive shares that sum to 1.")
        if prior and self.label_skew != "none":
            raise ValueError("Expected class-prior or label-skew, found both: they correct the same thing.")
        return self

    @property
    def public_prior(self) -> tuple[float, ...]:
        """The class frequencies of `class_prior`; empty when none are named."""
        try:
            return tuple(float(part) for part in self.class_prior.split(",") if part.strip())
        except ValueError:
            raise ValueError(f"Expected class-prior={self.class_prior!r} as numbers with commas between.") from None

    def at_version(self, version: int) -> Self:
        """Return the plan for the model version number `version`: the learning rate decayed that many times."""
        rate = self.learning_rate * self.learning_rate_decay**version
        return self.model_copy(update={"learning_rate": rate})


class Configuration(Table):
    """All tables of one run."""

    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    guard: GuardConfig = Field(default_factory=GuardConfig)
    masking: MaskingConfig = Field(default_factory=MaskingConfig)
    privacy: PrivacyConfig = Field(default_factory=PrivacyConfig)
    aggregation: AggregationConfig = Field(default_factory=AggregationConfig)
    record: RecordConfig = Field(default_factory=RecordConfig)
    run: RunConfig = Field(default_factory=RunConfig)

    @model_validator(mode="after")
    def _be_possible(self) -> Self:
        there, asked = self.run.hospitals, max(self.aggregation.sample_count, self.aggregation.min_updates)
        if there and asked > there:
            raise ValueError(
                f"Expected aggregation.sample-count and min-updates <= run.hospitals={there}, found {asked}."
            )
        if there and self.aggregation.rule == "buffered" and self.aggregation.buffer_size > there:
            raise ValueError(
                f"Expected aggregation.buffer-size={self.aggregation.buffer_size} <= run.hospitals={there}."
            )
        if not self.aggregation.is_synchronous and self.run.checkpoint_every > 1:
            raise ValueError(
                f"Expected run.checkpoint-every=1 with aggregation.rule={self.aggregation.rule!r}, found "
                f"{self.run.checkpoint_every}: hospitals work on older versions, which a resumed run needs."
            )
        sampled = self.aggregation.sample_count or max(1, round(self.aggregation.sample_fraction * there))
        if there and self.aggregation.min_updates > sampled:
            raise ValueError(
                f"Expected aggregation.min-updates={self.aggregation.min_updates} <= the {sampled} hospitals sampled."
            )
        rate = self.training.at_version(self.aggregation.rounds - 1).learning_rate
        if rate < _SMALLEST_RATE:
            raise ValueError(f"Expected a learning rate >= {_SMALLEST_RATE:g} in the last round, found {rate:g}.")
        if self.privacy.mechanism == "dp-sgd" and self.training.label_skew != "none":
            raise ValueError(
                f"Expected training.label-skew='none' under dp-sgd, found {self.training.label_skew!r}: it uses "
                "private counts of labels, which no noise protects; training.class-prior takes public ones."
            )
        if self.privacy.mechanism == "dp-sgd" and self.training.precision != "full":
            raise ValueError("Expected training.precision='full' under dp-sgd, which clips in float32.")
        if self.privacy.mechanism == "dp-sgd" and self.privacy.unit == "patient" and self.run.hospital_evaluation:
            raise ValueError(
                "Expected run.hospital-evaluation=false with privacy.unit='patient': scores protect single images only."
            )
        return self

    @property
    def data_seed(self) -> int:
        """The seed that decides who holds which images: `data.seed`, or else `run.seed`."""
        return self.run.seed if self.data.seed < 0 else self.data.seed
