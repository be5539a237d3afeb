"""What a hospital grants of what a server asks: the stricter of policy and request, or a refusal with a code.

A simulated hospital without a policy grants what is asked. Read next: `client_app.protection`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from client_app.policy import SitePolicy
from federation.config import PrivacyConfig
from federation.config.masking_table import MaskingMode
from federation.config.privacy_table import AccountName, default_account
from federation.errors import SiteError, SiteErrorCode

_FROM_STRICT_TO_TIGHT: tuple[AccountName, ...] = ("linear", "rdp", "pld")
_SCORES_ACCOUNT: AccountName = "pld"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What policy and request together allow: the stricter of both.

    Attributes:
        cap: the most epsilon over everything ever released from the data set.
        budget: the most epsilon over this run's releases; at a deployed hospital a resumed run counts anew.
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
    if request.mechanism == "update-gaussian" and own.relation == "replace-one" != request.relation:
        raise SiteError(
            SiteErrorCode.POLICY_MECHANISM, f"Expected privacy.relation='replace-one', found {request.relation!r}."
        )
    demanded = default_account(request.mechanism) if own.account == "default" else own.account
    return _grant(policy, request, stricter_account(demanded, request.account_name))


def grant_scores(policy: SitePolicy | None, request: PrivacyConfig) -> Grant:
    """Return the stricter of `policy` and `request` for scores that leave under a mechanism."""
    named = (request.account,) if policy is None else (policy.privacy.account, request.account)
    wanted = [name for name in named if name != "default"]
    account = min(wanted, key=_FROM_STRICT_TO_TIGHT.index, default=_SCORES_ACCOUNT)
    if policy is None:
        return replace(grant_release(None, request), account=account)
    least = max(policy.privacy.min_noise_multiplier, policy.evaluation.min_noise_multiplier)
    return replace(_grant(policy, request, account), min_noise_multiplier=least)


def stricter_account(one: AccountName, other: AccountName) -> AccountName:
    """Return that of two accounts which counts more for the same releases."""
    return min(one, other, key=_FROM_STRICT_TO_TIGHT.index)


def require_unit(policy: SitePolicy | None, request: PrivacyConfig, *, knows_patients: bool) -> None:
    """Check that `request` protects whom the hospital demands to be protected under "dp-sgd".

    Raises:
        SiteError: patients are demanded, or known and not waived, and images are asked for.
    """
    if policy is None or request.mechanism != "dp-sgd" or request.unit == "patient":
        return
    demanded = policy.privacy.unit
    if demanded == "patient" or (demanded == "default" and knows_patients):
        raise SiteError(
            SiteErrorCode.POLICY_MECHANISM,
            "Expected privacy.unit='patient', found 'record': the policy demands it, or the files carry patient ids "
            "and the policy does not say unit = 'record'.",
        )


def _grant(policy: SitePolicy, request: PrivacyConfig, account: AccountName) -> Grant:
    own = policy.privacy
    return Grant(
        cap=own.max_epsilon,
        budget=min(own.max_epsilon, request.epsilon),
        delta=min(own.max_delta, request.delta),
        account=account,
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
        SiteError: the model is not allowed, or there are too few images.
    """
    if policy is None:
        return
    _require_model(policy, model)
    if examples < policy.training.min_examples:
        raise SiteError(
            SiteErrorCode.POLICY_EXAMPLES,
            f"Expected at least training.min-examples={policy.training.min_examples} images, found {examples}.",
        )


def require_masking(policy: SitePolicy | None, mode: MaskingMode) -> None:
    """Check that masking by `mode`, "none" included, is as much as is demanded.

    Raises:
        SiteError: it is not.
    """
    if policy is None or not policy.masking.required or mode in policy.masking.modes:
        return
    raise SiteError(
        SiteErrorCode.POLICY_MASKING, f"Expected masking.mode of {list(policy.masking.modes)}, found {mode!r}."
    )


def grant_size(policy: SitePolicy | None, asked: int | None, found: int) -> int:
    """Return M, the number of synthetic images: what was asked for, or `found` where that was left to the hospital.

    Args:
        policy: whose least number counts.
        asked: by the server; None for "auto".
        found: what "auto" comes to, raised to the policy's least number.

    Raises:
        SiteError: fewer than the policy's least number were asked for.
    """
    least = 1 if policy is None else policy.masking.least_size
    if asked is None:
        return max(found, least)
    if asked < least:
        raise SiteError(
            SiteErrorCode.POLICY_MASKING, f"Expected at least masking.min-size={least} synthetic images, found {asked}."
        )
    return asked


def require_beside(policy: SitePolicy | None, found: int) -> None:
    """Check that `found` synthetic images beside the real ones of a step are as many as is demanded.

    Raises:
        SiteError: they are fewer.
    """
    least = 0 if policy is None else policy.masking.min_per_step
    if found < least:
        raise SiteError(
            SiteErrorCode.POLICY_MASKING,
            f"Expected at least masking.min-per-step={least} synthetic images of equal weight in every step, found "
            f"{found}: a larger masking.size or training.batch-size, or masking.mode = 'joint', brings more.",
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
