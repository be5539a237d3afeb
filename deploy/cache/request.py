"""What a person asks `aegis cache build` for, checked as a whole before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from aegis_cache.build import BuildSettings
from aegis_cache.proportions import Labels
from federation.config.table import Table
from federation.errors import ConfigurationError

_FEWEST_STEPS = 10

GeneratorKind = Literal["diffusion", "stable-diffusion", "gaussian", "folder", "phantom"]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the request that the command line's `options` make; others are passed over.

        Raises:
            ConfigurationError: naming every option that is wrong.
        """
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            lines = [
                f"--{'-'.join(str(part) for part in item['loc']).replace('_', '-')}: {item['msg']}"
                for item in error.errors()
            ]
            raise ConfigurationError("\n".join(lines)) from None


def simulated_id(hospital: int) -> str:
    """Return the id of the simulated hospital number `hospital`."""
    return f"hospital-{hospital:03d}"


class Place(_Request):
    """Which cache, of whom, and what is to be done with it.

    Attributes:
        folder: of the cache.
        policy: the hospital's site policy; None for a simulated hospital.
        assign: configuration of a simulated hospital.
        app: folder of the Flower app, for a simulated hospital.
        hospital: number of the simulated hospital.
        hospitals: number of simulated hospitals.
        every: whether every simulated hospital gets its cache, in a subfolder of `folder` that is named by its id.
        resume: whether an unfinished build goes on.
        fresh: whether an unfinished build is thrown away.
        dry_run: whether a build is only described.
        sheet: where to draw real images beside synthetic ones; None nowhere.
        as_json: whether to print JSON and nothing else.
    """

    folder: Path
    policy: Path | None = None
    assign: list[str] | None = None
    app: Path = Path()
    hospital: int = 0
    hospitals: int = 1
    resume: bool = False
    fresh: bool = False
    dry_run: bool = False
    sheet: Path | None = None
    as_json: bool = False
    every: bool = False

    @field_validator("sheet")
    @classmethod
    def _lie_in_a_folder(cls, sheet: Path | None) -> Path | None:
        if sheet is not None and not sheet.absolute().parent.is_dir():
            raise ValueError(f"Expected a folder at {sheet.absolute().parent}, found none.")
        return sheet

    @field_validator("every")
    @classmethod
    def _be_about_a_simulation(cls, every: bool, info: ValidationInfo) -> bool:
        given = [name for name in ("policy", "sheet", "hospital") if info.data.get(name) not in (None, 0)]
        if every and given:
            raise ValueError(f"Expected --every alone, found it with --{' and --'.join(given)}: it builds for all.")
        return every

    def of_hospital(self, hospital: int) -> Self:
        """Return the place of the simulated hospital number `hospital` alone, below this one's folder."""
        folder = self.folder / simulated_id(hospital)
        return self.model_copy(update={"folder": folder, "hospital": hospital, "every": False})


class PrivateSettings(Table):
    """How a generator is trained with differential privacy, beside its epsilon.

    Attributes:
        steps: of training.
        batch: images, or patients, that a step expects.
        clip_norm: C, of the gradient of one image or patient.
        delta: of epsilon; 0 takes the site policy's largest, at a simulated hospital 1e-5.
    """

    steps: int = Field(600, ge=1, le=1_000_000, strict=False)
    batch: int = Field(128, ge=1, strict=False)
    clip_norm: float = Field(1.0, gt=0, le=1e6, strict=False)
    delta: float = Field(0.0, ge=0, lt=1, strict=False)


class BuildRequest(_Request):
    """Every option of a build but where it goes and whom it is for.

    Attributes:
        generator: which kind makes the images.
        weights: of a trained one; None trains or fits one where that is possible.
        weights_are_public: whether no private image had a part in `weights`.
        adapt: whether `weights` are trained on before they are used.
        dp_epsilon: with which a generator is trained by DP-SGD; 0 trains without differential privacy.
        dp: more about that training, from key=value on the command line.
        train_minutes: budget for training without differential privacy.
        steps: that diffusion visits; 0 leaves it to the generator.
        unchecked: whether copies of training images are not looked for, because that uses these images.
        prompts: modality or template file of stable-diffusion; "" takes those of `modality`.
        scheduler: of stable-diffusion, by its name in diffusers; "" leaves it to the pipeline.
        draw_at_once: images that stable-diffusion makes at a time; 0 leaves it to the generator.
        modality: what kind of images these are, for the record.
        images: M, how many the cache is to hold.
        labels: their proportions.
        brightness: whether brightness is aimed at the private distribution.
        match_moments: whether mean and covariance of generated images are brought to those of the permitted ones.
        pairing: how candidates are compared with private images; "none" accepts all.
        features: what they are compared in: "pixels", "task" (a small network trained on the permitted images), a run's
            `model.safetensors`, or the weights of EfficientNet-Lite0.
        pass_rate: share of held-out real images that would pass.
        attempts: candidates per wanted image at most.
        largest_ks: of brightness and projections, beyond what chance explains.
        least_overlap: of brightness bins, relative to resampled real images.
        batch_size: candidates at a time.
        seed: decides every image.
    """

    generator: GeneratorKind = "diffusion"
    weights: Path | None = None
    weights_are_public: bool = False
    adapt: bool = False
    dp_epsilon: float = Field(0.0, ge=0, le=1e6, allow_inf_nan=False)
    dp: PrivateSettings = Field(default_factory=PrivateSettings)
    train_minutes: float = Field(27.0, gt=0)
    steps: int = Field(0, ge=0)
    unchecked: bool = False
    prompts: str = ""
    scheduler: str = ""
    draw_at_once: int = Field(0, ge=0)
    modality: str = "generic"
    images: int = Field(2048, ge=1)
    labels: Labels = "as-train"
    brightness: Literal["as-generated", "aim"] = "as-generated"
    match_moments: bool = False
    pairing: Literal["none", "nearest", "optimal"] = "nearest"
    features: str = "task"
    pass_rate: float = Field(0.95, gt=0, le=1)
    attempts: float = Field(4.0, ge=1)
    largest_ks: float = Field(0.08, ge=0)
    least_overlap: float = Field(0.85, ge=0)
    batch_size: int = Field(256, ge=1)
    seed: int = 0

    @field_validator("dp", mode="before")
    @classmethod
    def _read_assignments(cls, given: object) -> object:
        if not isinstance(given, list | tuple | None):
            return given
        pairs = [str(text).partition("=") for text in given or ()]
        if wrong := [key for key, sign, _ in pairs if not sign]:
            raise ValueError(f"Expected key=value, found {wrong}.")
        return {key: value for key, _, value in pairs}

    @field_validator("dp_epsilon")
    @classmethod
    def _be_about_training(cls, epsilon: float, info: ValidationInfo) -> float:
        given = info.data
        if epsilon and given.get("generator") != "diffusion":
            raise ValueError("Expected --generator diffusion, the only one that is trained by DP-SGD.")
        if epsilon and given.get("weights") is not None and not given.get("adapt"):
            raise ValueError("Expected a training: with --weights also --adapt, or no --weights.")
        return epsilon

    @field_validator("match_moments")
    @classmethod
    def _promise_nothing_else(cls, match: bool, info: ValidationInfo) -> bool:
        given = info.data
        if match and (given.get("dp_epsilon") or given.get("weights_are_public")):
            raise ValueError(
                "Expected neither --dp-epsilon nor --weights-are-public: every image would carry mean and covariance "
                "of private ones, so the cache would be 'private-adapted' and refused under privacy.mechanism='dp-sgd'."
            )
        if match and given.get("generator") == "phantom":
            raise ValueError("Expected another --generator than phantom, whose images have the data set's moments.")
        if match and given.get("labels") != "as-train":
            raise ValueError("Expected --labels as-train: moments are those of all images, in their proportions.")
        return match

    @field_validator("steps")
    @classmethod
    def _be_enough(cls, steps: int) -> int:
        if 0 < steps < _FEWEST_STEPS:
            raise ValueError(f"Expected 0 or at least {_FEWEST_STEPS}.")
        return steps

    @property
    def settings(self) -> BuildSettings:
        """What decides the images beside generator and private images."""
        return BuildSettings(
            images=self.images,
            labels=self.labels,
            aim_brightness=self.brightness == "aim",
            # Of a stock of images each call draws without repetition, but calls know nothing of each other.
            batch_size=max(self.batch_size, self.images) if self.generator == "folder" else self.batch_size,
            attempts=self.attempts,
            largest_ks=self.largest_ks,
            least_overlap=self.least_overlap,
            seed=self.seed,
        )

    @property
    def looks_at_images(self) -> bool:
        """Whether private images are looked at without a mechanism: no epsilon can be claimed for the cache then."""
        return self.uses_images or not self.unchecked

    @property
    def uses_images(self) -> bool:
        """Whether private images are looked at beside training a generator."""
        return self.pairing != "none" or self.labels != "balanced" or self.brightness == "aim"
