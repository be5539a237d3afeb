"""A hospital's policy: deny by default, the stricter of policy and request wins, and no request weakens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from client_app.granting import (
    grant_release,
    require_evaluation,
    require_mechanism,
    require_training,
)
from client_app.policy import SitePolicy, read_policy
from federation.config import PrivacyConfig
from federation.errors import SiteError, SiteErrorCode

BASE: dict[str, Any] = {
    "hospital-id": "north",
    "state-dir": "/srv/state",
    "keys-dir": "/srv/keys",
    "data": {"id": "chest", "name": "folder", "root": "/srv/images"},
}
FULL: dict[str, Any] = BASE | {
    "privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": 4.0, "max-delta": 1e-5, "min-noise-multiplier": 0.7},
    "models": {"allowed": ["cnn"]},
    "training": {"min-examples": 50},
    "evaluation": {"metrics": "noised"},
}


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "site.toml"
    path.write_text(tomli_w.dumps(content))
    return path


def policy_of(**tables: Any) -> SitePolicy:
    return SitePolicy.model_validate(FULL | tables)


def code_of(error: pytest.ExceptionInfo[SiteError]) -> SiteErrorCode:
    return error.value.code


def test_policy_is_read_from_its_file(tmp_path: Path) -> None:
    policy = read_policy(write(tmp_path, FULL))

    assert policy == policy_of()
    assert (policy.data.id, policy.privacy.mechanisms, policy.models.allowed) == ("chest", ("dp-sgd",), ("cnn",))


def test_missing_policy_has_a_code_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match=r"docs/site-policy\.md") as error:
        read_policy(tmp_path / "site.toml")

    assert code_of(error) is SiteErrorCode.POLICY_MISSING


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hospital-id": "a/b"}, "hospital-id"),
        ({"state-dir": "state"}, "absolute path"),
        ({"keys-dir": "/srv/state"}, "restores an old ledger"),
        ({"surprise": 1}, "surprise"),
        ({"data": {"id": "x y", "name": "folder", "root": "/a"}}, "data"),
        ({"data": {"id": "x", "name": "folder", "root": "images"}}, "absolute path"),
        ({"data": {**BASE["data"], "test-fraction": 0}}, "test-fraction"),
        ({"data": {**BASE["data"], "validation-fraction": 1}}, "validation-fraction"),
        ({"data": {**BASE["data"], "validation-fraction": 0.4, "test-fraction": 0.6}}, "test-fraction = 1 < 1"),
        ({"data": {**BASE["data"], "validation-fraction": 0.85}}, "test-fraction = 1.05 < 1"),
        ({"privacy": {"mechanisms": ["dp-sgd"]}}, "max-epsilon > 0"),
        ({"privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": 1.0}}, "max-delta > 0"),
        ({"privacy": {"mechanisms": ["masking"], "max-epsilon": 1.0, "max-delta": 1e-5}}, "mechanisms"),
        ({"privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": -1.0, "max-delta": 1e-5}}, "max-epsilon"),
        ({"privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": 1.0, "max-delta": 1.0}}, "max-delta"),
        ({"evaluation": {"metrics": "rounded"}}, "metrics"),
        ({"training": {"min-examples": 0}}, "min-examples"),
    ],
)
def test_impossible_policy_is_refused_by_name(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    with pytest.raises(SiteError, match=named) as error:
        read_policy(write(tmp_path, FULL | change))

    assert code_of(error) is SiteErrorCode.CONFIGURATION


def test_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(b"\xff = [")

    with pytest.raises(SiteError, match="cannot be read") as error:
        read_policy(path)

    assert code_of(error) is SiteErrorCode.CONFIGURATION


def test_policy_without_rules_allows_nothing() -> None:
    silent = SitePolicy.model_validate(BASE)

    for mechanism in ("none", "dp-sgd", "update-gaussian"):
        with pytest.raises(SiteError) as error:
            require_mechanism(silent, mechanism)
        assert code_of(error) is SiteErrorCode.POLICY_MECHANISM
    with pytest.raises(SiteError) as error:
        require_training(silent, model="cnn", examples=10**6)
    assert code_of(error) is SiteErrorCode.POLICY_MODEL
    with pytest.raises(SiteError) as error:
        require_evaluation(silent.model_copy(update={"models": policy_of().models}), model="cnn", exact=False)
    assert code_of(error) is SiteErrorCode.POLICY_METRICS


@pytest.mark.parametrize("mechanism", ["none", "update-gaussian"])
def test_mechanism_that_is_not_allowed_is_refused(mechanism: Any) -> None:
    with pytest.raises(SiteError, match="dp-sgd") as error:
        grant_release(policy_of(), PrivacyConfig(mechanism=mechanism))

    assert code_of(error) is SiteErrorCode.POLICY_MECHANISM


@pytest.mark.parametrize(
    ("tables", "model", "examples", "code"),
    [
        ({}, "mlp", 100, SiteErrorCode.POLICY_MODEL),
        ({}, "cnn", 49, SiteErrorCode.POLICY_EXAMPLES),
        ({"masking": {"required": True}}, "cnn", 100, SiteErrorCode.POLICY_MASKING),
    ],
)
def test_training_against_the_policy_is_refused(
    tables: dict[str, Any], model: str, examples: int, code: SiteErrorCode
) -> None:
    with pytest.raises(SiteError) as error:
        require_training(policy_of(**tables), model=model, examples=examples)

    assert code_of(error) is code


def test_training_within_the_policy_is_allowed() -> None:
    require_training(policy_of(), model="cnn", examples=50)
    require_training(None, model="anything", examples=1)


@pytest.mark.parametrize(
    ("metrics", "exact", "allowed"),
    [("off", False, False), ("off", True, False), ("noised", False, True), ("noised", True, False),
     ("exact", False, True), ("exact", True, True)],
)  # fmt: skip
def test_scores_leave_only_as_the_policy_says(metrics: str, exact: bool, allowed: bool) -> None:
    policy = policy_of(evaluation={"metrics": metrics})

    if allowed:
        require_evaluation(policy, model="cnn", exact=exact)
    else:
        with pytest.raises(SiteError) as error:
            require_evaluation(policy, model="cnn", exact=exact)
        assert code_of(error) is SiteErrorCode.POLICY_METRICS


@given(
    asked=st.floats(1e-3, 1e3),
    allowed=st.floats(1e-3, 1e3),
    asked_delta=st.floats(1e-9, 0.5),
    allowed_delta=st.floats(1e-9, 0.5),
    least=st.floats(0, 10),
)
def test_request_never_weakens_the_policy(
    asked: float, allowed: float, asked_delta: float, allowed_delta: float, least: float
) -> None:
    own = {
        "mechanisms": ["dp-sgd"],
        "max-epsilon": allowed,
        "max-delta": allowed_delta,
        "min-noise-multiplier": least,
        "account": "linear",
    }

    grant = grant_release(
        policy_of(privacy=own), PrivacyConfig(mechanism="dp-sgd", epsilon=asked, delta=asked_delta, account="rdp")
    )

    assert grant.cap == allowed
    assert grant.budget == min(asked, allowed)
    assert grant.delta == min(asked_delta, allowed_delta)
    assert grant.min_noise_multiplier == least
    assert grant.account == "linear"


def test_account_of_the_request_counts_where_the_policy_names_none() -> None:
    assert grant_release(policy_of(), PrivacyConfig(mechanism="dp-sgd", account="rdp")).account == "rdp"
    assert grant_release(policy_of(), PrivacyConfig(mechanism="dp-sgd")).account == "pld"
    assert grant_release(None, PrivacyConfig(mechanism="update-gaussian")).account == "linear"
