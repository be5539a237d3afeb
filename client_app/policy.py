"""The site policy: what this hospital demands before anything leaves it, in one file that the hospital owns.

Deny by default: a deployed hospital without a policy answers nothing, and what the policy does not allow is refused
with a code that the server can show. The stricter of policy and request wins; no request can weaken the policy.
`docs/site-policy.md` explains the file to those who write it. Read next: `client_app.protection`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from federation.config import DataConfig, PrivacyConfig
from federation.config.privacy_table import AccountName, MechanismName
from federation.config.table import Table
from federation.config.tables import check_fractions
from federation.errors import SiteError, SiteErrorCode
from federation.identifiers import IDENTIFIER_RULE, is_identifier

_LARGEST_EPSILON = 1e6


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

    id: str
    name: str
    root: str
    validation_fraction: float = Field(DataConfig().validation_fraction, gt=0, lt=1)
    test_fraction: float = Field(DataConfig().test_fraction, gt=0, lt=1)

    @field_validator("id")
    @classmethod
    def _be_identifier(cls, name: str) -> str:
        if not is_identifier(name):
            raise ValueError(f"Expected {IDENTIFIER_RULE}, found {name!r}.")
        return name

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
        account: which account binds; `default` takes the mechanism's.
    """

    mechanisms: tuple[MechanismName, ...] = ()
    max_epsilon: float = Field(0.0, ge=0, le=_LARGEST_EPSILON)
    max_delta: float = Field(0.0, ge=0, lt=1)
    max_epsilon_per_release: float = Field(0.0, ge=0)
    min_noise_multiplier: float = Field(0.0, ge=0)
    account: Literal["default", "linear", "rdp", "pld"] = "default"

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


class SiteMasking(Table):
    """Whether every update must be masked (an empirical defence, no differential privacy)."""

    required: bool = False


class SiteEvaluation(Table):
    """Whether scores may leave.

    Attributes:
        metrics: `off`; `noised`: accuracy under a mechanism, booked in the ledger; `exact`: also exact accuracy and
            AUROC when the run uses no mechanism.
        min_noise_multiplier: least noise on the number of correct answers.
    """

    metrics: Literal["off", "noised", "exact"] = "off"
    min_noise_multiplier: float = Field(0.0, ge=0)


class SitePolicy(Table):
    """Everything in a `site.toml`."""

    hospital_id: str
    state_dir: str
    keys_dir: str
    data: SiteData
    privacy: SitePrivacy = Field(default_factory=SitePrivacy)
    models: SiteModels = Field(default_factory=SiteModels)
    training: SiteTraining = Field(default_factory=SiteTraining)
    masking: SiteMasking = Field(default_factory=SiteMasking)
    evaluation: SiteEvaluation = Field(default_factory=SiteEvaluation)

    @field_validator("hospital_id")
    @classmethod
    def _be_identifier(cls, name: str) -> str:
        if not is_identifier(name):
            raise ValueError(f"Expected {IDENTIFIER_RULE}, found {name!r}.")
        return name

    @field_validator("state_dir", "keys_dir")
    @classmethod
    def _be_absolute(cls, folder: str) -> str:
        return _absolute(folder)

    @model_validator(mode="after")
    def _keep_keys_apart(self) -> Self:
        if Path(self.state_dir) == Path(self.keys_dir):
            raise ValueError(
                f"Expected keys-dir to differ from state-dir={self.state_dir!r}: whoever restores an old ledger must "
                "not restore its anchor with it."
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What policy and request together allow: the stricter of both.

    Attributes:
        cap: the most epsilon over everything ever released from the data set.
        budget: the most epsilon over this run's releases.
        delta: at which both are counted.
        account: the account that binds.
        min_noise_multiplier: least noise over sensitivity.
        max_epsilon_per_release: largest epsilon of one release; 0 for no bound.
    """

    cap: float
    budget: float
    delta: float
    account: AccountName
    min_noise_multiplier: float
    max_epsilon_per_release: float


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


def grant_release(policy: SitePolicy | None, request: PrivacyConfig) -> Grant:
    """Return the stricter of `policy` and `request`, for a mechanism that gives an epsilon.

    Args:
        policy: None at a simulated hospital without one, which grants what is asked.
        request: the server's wish, `mechanism` not "none".

    Raises:
        SiteError: the policy does not allow the mechanism.
    """
    if policy is None:
        return Grant(
            cap=request.epsilon,
            budget=request.epsilon,
            delta=request.delta,
            account=request.account_name,
            min_noise_multiplier=0.0,
            max_epsilon_per_release=0.0,
        )
    require_mechanism(policy, request.mechanism)
    own = policy.privacy
    return Grant(
        cap=own.max_epsilon,
        budget=min(own.max_epsilon, request.epsilon),
        delta=min(own.max_delta, request.delta),
        account=request.account_name if own.account == "default" else own.account,
        min_noise_multiplier=own.min_noise_multiplier,
        max_epsilon_per_release=own.max_epsilon_per_release,
    )


def require_mechanism(policy: SitePolicy | None, mechanism: str) -> None:
    """Check that `mechanism` is allowed.

    Raises:
        SiteError: it is not.
    """
    if policy is not None and mechanism not in policy.privacy.mechanisms:
        raise SiteError(
            SiteErrorCode.POLICY_MECHANISM,
            f"Expected privacy.mechanism of {list(policy.privacy.mechanisms)}, found {mechanism!r}.",
        )


def require_training(policy: SitePolicy | None, *, model: str, examples: int) -> None:
    """Check that training `model` on `examples` images is allowed.

    Raises:
        SiteError: the model is not allowed, there are too few images, or masking is required, which no run offers yet.
    """
    if policy is None:
        return
    _require_model(policy, model)
    if policy.masking.required:
        raise SiteError(SiteErrorCode.POLICY_MASKING, "Expected a masked run, found one without masking.")
    if examples < policy.training.min_examples:
        raise SiteError(
            SiteErrorCode.POLICY_EXAMPLES,
            f"Expected at least training.min-examples={policy.training.min_examples} images, found {examples}.",
        )


def require_evaluation(policy: SitePolicy | None, *, model: str, exact: bool) -> None:
    """Check that scores of `model` may leave, exactly or noised.

    Raises:
        SiteError: they may not.
    """
    if policy is None:
        return
    _require_model(policy, model)
    allowed = policy.evaluation.metrics
    if allowed == "off" or (exact and allowed != "exact"):
        kind = "exact" if exact else "noised"
        raise SiteError(
            SiteErrorCode.POLICY_METRICS, f"Expected evaluation.metrics={allowed!r} to allow {kind} scores."
        )


def _require_model(policy: SitePolicy, model: str) -> None:
    if model not in policy.models.allowed:
        raise SiteError(
            SiteErrorCode.POLICY_MODEL, f"Expected a model of {list(policy.models.allowed)}, found {model!r}."
        )


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise ValueError(f"Expected an absolute path, found {path!r}.")
    return path
