"""What a hospital grants: the stricter of policy and request, or a refusal with a code."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_app.granting import (
    grant_release,
    grant_scores,
    grant_size,
    require_evaluation,
    require_masking,
    require_mechanism,
    require_training,
    require_unit,
    stricter_account,
)
from client_app.policy import SitePolicy
from federation.accounting.accounts import account_of
from federation.accounting.events import GaussianRelease, History
from federation.config import PrivacyConfig
from federation.errors import SiteError, SiteErrorCode
from tests.client_app.test_policy import BASE, code_of, policy_of

ACCOUNTS: list[Any] = ["linear", "rdp", "pld"]


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


def open_policy(**privacy: Any) -> SitePolicy:
    table = {"mechanisms": ["dp-sgd", "update-gaussian"], "max-epsilon": 4.0, "max-delta": 1e-5}
    return policy_of(privacy=table | privacy)


@pytest.mark.parametrize(("one", "other"), list(product(ACCOUNTS, ACCOUNTS)))
def test_stricter_of_two_accounts_counts_more_for_the_same_releases(one: Any, other: Any) -> None:
    history = History().plus(GaussianRelease(noise_multiplier=24.22), 20)
    costs = {name: account_of(name).epsilon(history, 1e-5) for name in (one, other)}

    assert costs[stricter_account(one, other)] == max(costs.values())
    assert stricter_account(one, other) == stricter_account(other, one)


@pytest.mark.parametrize(
    ("mechanism", "demanded", "asked", "binds"),
    [
        ("update-gaussian", "default", "pld", "linear"),
        ("update-gaussian", "default", "rdp", "linear"),
        ("update-gaussian", "default", "default", "linear"),
        ("update-gaussian", "pld", "linear", "linear"),
        ("update-gaussian", "pld", "default", "linear"),
        ("update-gaussian", "pld", "rdp", "rdp"),
        ("update-gaussian", "rdp", "pld", "rdp"),
        ("dp-sgd", "default", "default", "pld"),
        ("dp-sgd", "default", "linear", "linear"),
        ("dp-sgd", "rdp", "pld", "rdp"),
        ("dp-sgd", "linear", "default", "linear"),
    ],
)
def test_stricter_account_of_policy_and_request_binds(mechanism: Any, demanded: str, asked: Any, binds: str) -> None:
    grant = grant_release(open_policy(account=demanded), PrivacyConfig(mechanism=mechanism, account=asked))

    assert grant.account == binds


@pytest.mark.parametrize(
    ("demanded", "asked", "allowed"),
    [
        ("replace-one", "zero-out", False),
        ("replace-one", "replace-one", True),
        ("zero-out", "zero-out", True),
        ("zero-out", "replace-one", True),
    ],
)
def test_relation_of_the_policy_is_the_least_that_is_granted(demanded: str, asked: Any, allowed: bool) -> None:
    policy, request = open_policy(relation=demanded), PrivacyConfig(mechanism="update-gaussian", relation=asked)

    if allowed:
        assert grant_release(policy, request).cap == 4.0
    else:
        with pytest.raises(SiteError, match="'replace-one', found 'zero-out'") as refused:
            grant_release(policy, request)
        assert code_of(refused) is SiteErrorCode.POLICY_MECHANISM


def test_relation_of_updates_does_not_bind_dp_sgd() -> None:
    assert grant_release(open_policy(relation="replace-one"), PrivacyConfig(mechanism="dp-sgd")).account == "pld"


@pytest.mark.parametrize(
    ("demanded", "asked", "knows_patients", "allowed"),
    [
        ("default", "record", True, False),
        ("default", "record", False, True),
        ("default", "patient", True, True),
        ("record", "record", True, True),
        ("record", "patient", True, True),
        ("patient", "record", False, False),
        ("patient", "record", True, False),
        ("patient", "patient", True, True),
    ],
)
def test_patients_known_to_the_files_are_protected_unless_the_policy_waives_it(
    demanded: str, asked: Any, knows_patients: bool, allowed: bool
) -> None:
    policy, request = open_policy(unit=demanded), PrivacyConfig(mechanism="dp-sgd", unit=asked)

    if allowed:
        require_unit(policy, request, knows_patients=knows_patients)
    else:
        with pytest.raises(SiteError, match=r"privacy\.unit='patient'") as refused:
            require_unit(policy, request, knows_patients=knows_patients)
        assert code_of(refused) is SiteErrorCode.POLICY_MECHANISM


def test_unit_binds_neither_whole_updates_nor_a_simulated_hospital_without_a_policy() -> None:
    strict = open_policy(unit="patient")

    require_unit(strict, PrivacyConfig(mechanism="update-gaussian"), knows_patients=True)
    require_unit(None, PrivacyConfig(mechanism="dp-sgd"), knows_patients=True)


@pytest.mark.parametrize("mechanism", ["dp-sgd", "update-gaussian"])
@pytest.mark.parametrize(("demanded", "binds"), [("default", "pld"), ("linear", "linear"), ("rdp", "rdp")])
def test_scores_are_counted_by_the_account_of_the_policy(mechanism: Any, demanded: str, binds: str) -> None:
    grant = grant_scores(open_policy(account=demanded), PrivacyConfig(mechanism=mechanism))

    assert grant.account == binds


@pytest.mark.parametrize(("least", "least_of_scores"), [(3.0, 5.0), (5.0, 3.0), (5.0, 0.0), (0.0, 5.0)])
def test_scores_get_the_larger_least_noise_and_the_bounds_of_the_policy(least: float, least_of_scores: float) -> None:
    own = {"mechanisms": ["dp-sgd"], "max-epsilon": 4.0, "max-delta": 1e-6, "max-epsilon-per-release": 0.5}
    policy = policy_of(
        privacy=own | {"min-noise-multiplier": least},
        evaluation={"metrics": "noised", "min-noise-multiplier": least_of_scores},
    )

    grant = grant_scores(policy, PrivacyConfig(mechanism="dp-sgd", epsilon=2.0, delta=1e-5))

    assert (grant.cap, grant.budget, grant.delta) == (4.0, 2.0, 1e-6)
    assert (grant.min_noise_multiplier, grant.max_epsilon_per_release) == (5.0, 0.5)


def test_scores_of_a_simulated_hospital_without_a_policy_are_granted_as_asked() -> None:
    grant = grant_scores(None, PrivacyConfig(mechanism="update-gaussian", epsilon=2.0, delta=1e-4))

    assert (grant.cap, grant.budget, grant.delta, grant.account) == (2.0, 2.0, 1e-4, "pld")
    assert (grant.min_noise_multiplier, grant.max_epsilon_per_release) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("demanded", "asked", "binds"),
    [("default", "default", "pld"), ("default", "linear", "linear"), ("rdp", "default", "rdp"), ("pld", "rdp", "rdp")],
)
def test_stricter_account_binds_for_scores(demanded: str, asked: Any, binds: str) -> None:
    request = PrivacyConfig(mechanism="dp-sgd", account=asked)

    assert grant_scores(open_policy(account=demanded), request).account == binds
    assert grant_scores(None, request).account == ("pld" if asked == "default" else asked)


@pytest.mark.parametrize(
    ("demanded", "mode", "allowed"),
    [
        ({}, "none", True),
        ({}, "sequential", True),
        ({"required": True}, "none", False),
        ({"required": True}, "sequential", False),
        ({"required": True}, "lambda", False),
        ({"required": True, "modes": ["lambda"]}, "lambda", True),
        ({"required": True}, "joint", True),
        ({"required": True}, "interleaved", True),
        ({"required": True, "modes": ["joint"]}, "interleaved", False),
        ({"required": True, "modes": ["sequential"]}, "sequential", True),
        ({"required": False, "modes": ["joint"]}, "interleaved", True),
    ],
)
def test_masking_takes_part_in_a_way_that_the_policy_takes_for_masking(
    demanded: dict[str, Any], mode: Any, allowed: bool
) -> None:
    policy = policy_of(masking=demanded)

    if allowed:
        require_masking(policy, mode)
    else:
        with pytest.raises(SiteError, match=f"found {mode!r}") as refused:
            require_masking(policy, mode)
        assert code_of(refused) is SiteErrorCode.POLICY_MASKING


@pytest.mark.parametrize(
    ("demanded", "asked", "found", "granted"),
    [
        ({}, 1, 500, 1),
        ({}, None, 500, 500),
        ({"min-size": 100}, 100, 5, 100),
        ({"min-size": 100}, None, 5, 100),
        ({"required": True}, 2048, 5, 2048),
        ({"required": True}, None, 5, 2048),
        ({"required": True, "min-size": 10}, None, 5, 10),
    ],
)
def test_number_of_images_is_the_stricter_of_policy_and_request(
    demanded: dict[str, Any], asked: int | None, found: int, granted: int
) -> None:
    assert grant_size(policy_of(masking=demanded), asked, found) == granted


@pytest.mark.parametrize(("demanded", "least"), [({"min-size": 100}, 100), ({"required": True}, 2048)])
def test_masking_with_fewer_images_than_the_policy_demands_is_refused(demanded: dict[str, Any], least: int) -> None:
    with pytest.raises(SiteError, match=rf"min-size={least} synthetic images, found {least - 1}") as refused:
        grant_size(policy_of(masking=demanded), least - 1, 1)

    assert code_of(refused) is SiteErrorCode.POLICY_MASKING


def test_simulated_hospital_without_a_policy_takes_any_masking() -> None:
    require_masking(None, "none")
    require_masking(None, "sequential")
    assert (grant_size(None, 1, 500), grant_size(None, None, 500)) == (1, 500)
