"""The site policy: what this hospital demands before anything leaves it, in one file that the hospital owns.

Deny by default: a deployed hospital without a policy answers nothing, and what the policy does not allow is refused
with a code that the server can show. The stricter of policy and request wins; no request can weaken the policy.
`docs/site-policy.md` explains the file to those who write it. Read next: `client_app.granting`.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from federation.config import DataConfig
from federation.config.masking_table import MaskingMode
from federation.config.privacy_table import MechanismName
from federation.config.table import Table
from federation.config.tables import check_fractions
from federation.errors import SiteError, SiteErrorCode
from federation.identifiers import Identifier

_LARGEST_EPSILON = 1e6
_FAIR_SIZE = 2048


class SiteData(Table):
    """The hospital's own data set.

    Attributes:
        id: its name in the ledger. The same images must keep the same id for ever: a new id is a new budget.
        name: what the files are: `folder`, `npz`, `adult` or a MedMNIST name.
        root: absolute path of the folder or file.
        validation_fraction: share held out for validation where the files bring no split; which images are trained on
            follows from it, so it stays.
        test_fraction: share held out for testing, likewise.
    """

    id: Identifier
    name: str
    root: str
    validation_fraction: float = Field(DataConfig().validation_fraction, gt=0, lt=1)
    test_fraction: float = Field(DataConfig().test_fraction, gt=0, lt=1)

    @field_validator("root")
    @classmethod
    def _be_absolute(cls, root: str) -> str:
        return _absolute(root)

    @model_validator(mode="after")
    def _leave_something_to_train_on(self) -> Self:
        check_fractions(validation=self.validation_fraction, test=self.test_fraction)
        return self


class SitePrivacy(Table):
    """What every update must be protected by.

    Attributes:
        mechanisms: those allowed; `none` among them lets updates leave unprotected.
        max_epsilon: the cap over everything ever released from the data set.
        max_delta: largest delta at which epsilon is counted.
        max_epsilon_per_release: largest epsilon of a single release at that delta; 0 sets no such bound.
        min_noise_multiplier: least noise over sensitivity in any release.
        account: which account binds at least; `default` takes the mechanism's. A request may only be stricter.
        unit: who `dp-sgd` must protect; `default`: patients where the files carry patient ids, else images.
        relation: what neighbours differ in under `update-gaussian`; `replace-one` is the stricter one.
    """

    mechanisms: tuple[MechanismName, ...] = ()
    max_epsilon: float = Field(0.0, ge=0, le=_LARGEST_EPSILON)
    max_delta: float = Field(0.0, ge=0, lt=1)
    max_epsilon_per_release: float = Field(0.0, ge=0)
    min_noise_multiplier: float = Field(0.0, ge=0)
    account: Literal["default", "linear", "rdp", "pld"] = "default"
    unit: Literal["default", "record", "patient"] = "default"
    relation: Literal["zero-out", "replace-one"] = "zero-out"

    @field_validator("mechanisms", mode="before")
    @classmethod
    def _be_a_tuple(cls, names: object) -> object:
        return tuple(names) if isinstance(names, list) else names

    @model_validator(mode="after")
    def _have_a_budget(self) -> Self:
        private = [name for name in self.mechanisms if name != "none"]
        if private and not (self.max_epsilon and self.max_delta):
            raise ValueError(f"Expected max-epsilon > 0 and max-delta > 0, since {private} is allowed.")
        return self


class SiteModels(Table):
    """Which networks this hospital trains; none by default."""

    allowed: tuple[str, ...] = ()

    @field_validator("allowed", mode="before")
    @classmethod
    def _be_a_tuple(cls, names: object) -> object:
        return tuple(names) if isinstance(names, list) else names


class SiteTraining(Table):
    """How many training images there must be for an update to leave."""

    min_examples: int = Field(1, ge=1)


class SiteGuard(Table):
    """Whether a model that looks crafted to read images is refused (`client_app.model_guard`)."""

    enabled: bool = True


class SiteMasking(Table):
    """Masking by synthetic images (an empirical defence, no differential privacy).

    Attributes:
        required: whether every update must be masked.
        private_images: what building the synthetic images may do with training images: nothing; compare synthetic
            images with them and take over proportions and brightness; or also train a generator on them.
        permitted_fraction: share of the training images that may be used for it.
        modes: how synthetic images must take part where masking is required; by default those that give real and
            synthetic images equal weight under every optimizer.
        min_size: fewest synthetic images in a masked update; 0: 2048 where masking is required, else 1.
        min_per_step: fewest synthetic images of equal weight beside the real ones of an optimizer step, whatever the
            number of steps; 0: no such demand.
        vary: whether the images of masked steps are changed anew each time they are used, whatever the run asks for.
        cache: absolute folder of the hospital's cache; empty for none.
    """

    required: bool = False
    modes: tuple[MaskingMode, ...] = ("interleaved", "joint")
    min_size: int = Field(0, ge=0)
    min_per_step: int = Field(0, ge=0)
    vary: bool = True
    cache: str = ""
    private_images: Literal["unused", "compare", "train"] = "unused"
    permitted_fraction: float = Field(1.0, gt=0, le=1)

    @property
    def least_size(self) -> int:
        """Fewest synthetic images in a masked update."""
        return self.min_size or (_FAIR_SIZE if self.required else 1)

    @field_validator("modes", mode="before")
    @classmethod
    def _be_a_tuple(cls, names: object) -> object:
        return tuple(names) if isinstance(names, list) else names

    @field_validator("modes")
    @classmethod
    def _mask(cls, modes: tuple[MaskingMode, ...]) -> tuple[MaskingMode, ...]:
        if not modes or "none" in modes:
            raise ValueError(f"Expected at least one mode, none of them 'none', found {list(modes)}.")
        return modes

    @field_validator("cache")
    @classmethod
    def _be_absolute(cls, folder: str) -> str:
        return _absolute(folder) if folder else folder


class SiteEvaluation(Table):
    """Whether scores may leave.

    Attributes:
        metrics: `off`; `noised`: accuracy under a mechanism, booked in the ledger; `exact`: also exact accuracy and
            AUROC when the run uses no mechanism.
        min_noise_multiplier: least noise on the number of correct answers.
    """

    metrics: Literal["off", "noised", "exact"] = "off"
    min_noise_multiplier: float = Field(0.0, ge=0)


class SiteOutbox(Table):
    """Copies of what left the hospital, for its own eyes.

    Attributes:
        folder: absolute folder of the copies, for nothing else; empty for none.
        keep: newest copies that are kept, over all runs.
    """

    folder: str = ""
    keep: int = Field(20, ge=1)

    @field_validator("folder")
    @classmethod
    def _be_absolute(cls, folder: str) -> str:
        return _absolute(folder) if folder else folder


class SitePolicy(Table):
    """Everything in a `site.toml`."""

    hospital_id: Identifier
    state_dir: str
    keys_dir: str
    data: SiteData
    privacy: SitePrivacy = Field(default_factory=SitePrivacy)
    models: SiteModels = Field(default_factory=SiteModels)
    training: SiteTraining = Field(default_factory=SiteTraining)
    guard: SiteGuard = Field(default_factory=SiteGuard)
    masking: SiteMasking = Field(default_factory=SiteMasking)
    evaluation: SiteEvaluation = Field(default_factory=SiteEvaluation)
    outbox: SiteOutbox = Field(default_factory=SiteOutbox)

    @field_validator("state_dir", "keys_dir")
    @classmethod
    def _be_absolute(cls, folder: str) -> str:
        return _absolute(folder)

    @model_validator(mode="after")
    def _keep_keys_apart(self) -> Self:
        state, keys = (Path(os.path.realpath(folder)) for folder in (self.state_dir, self.keys_dir))
        if state.is_relative_to(keys) or keys.is_relative_to(state):
            raise ValueError(
                f"Expected keys-dir={self.keys_dir!r} apart from state-dir={self.state_dir!r}, neither within the "
                "other: whoever restores an old ledger must not restore its anchor with it."
            )
        return self

    @model_validator(mode="after")
    def _keep_copies_apart(self) -> Self:
        folder = self.outbox.folder
        copies = Path(os.path.realpath(folder))
        for name, own in (("data.root", self.data.root), ("keys-dir", self.keys_dir), ("state-dir", self.state_dir)):
            other = Path(os.path.realpath(own))
            within = copies.is_relative_to(other) and name != "state-dir"
            if folder and (within or other.is_relative_to(copies)):
                raise ValueError(
                    f"Expected outbox.folder={folder!r} apart from {name}={own!r}: old copies are deleted from it, and "
                    "copies are neither images nor keys."
                )
        return self


def read_policy(path: Path) -> SitePolicy:
    """Return the policy in the file at `path`.

    Raises:
        SiteError: the file is missing (nothing is allowed then), is not TOML, or has unknown keys or impossible values.
    """
    try:
        return SitePolicy.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise SiteError(
            SiteErrorCode.POLICY_MISSING, f"Expected the site policy {path}, found no file: docs/site-policy.md."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SiteError(SiteErrorCode.CONFIGURATION, f"The site policy {path} cannot be read: {error}") from None
    except ValidationError as error:
        lines = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
        raise SiteError(SiteErrorCode.CONFIGURATION, "\n".join([f"The site policy {path}:", *lines])) from None


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise ValueError(f"Expected an absolute path, found {path!r}.")
    return path
