"""How much noise the next release gets: planned once, planned again for what is left, or set by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_app.perturbation.schedule import plan_noise_multiplier
from federation.accounting.accounts import ACCOUNTS
from federation.accounting.events import Event, GaussianRelease, History, SampledGaussianRelease
from federation.accounting.gaussian import gaussian_delta
from federation.config import PrivacyConfig
from federation.errors import BudgetExhaustedError, PrivacyError

DELTA = 1e-5
NOTHING = History()


def sampled(noise_multiplier: float) -> SampledGaussianRelease:
    return SampledGaussianRelease(noise_multiplier=noise_multiplier, sampling_probability=0.05, steps=20)


def gaussian(noise_multiplier: float) -> GaussianRelease:
    return GaussianRelease(noise_multiplier=noise_multiplier)


def plan(
    make_event: Callable[[float], Event] = gaussian,
    *,
    spent: History = NOTHING,
    released: int = 0,
    planned: int = 20,
    cap: float = 8.0,
    account: str = "pld",
    **privacy: Any,
) -> float:
    return plan_noise_multiplier(
        PrivacyConfig.model_validate(privacy), make_event, spent=spent, released=released, planned=planned, cap=cap,
        delta=DELTA, account=ACCOUNTS[account],
    )  # fmt: skip


def epsilon(history: History, account: str) -> float:
    return ACCOUNTS[account].epsilon(history, DELTA)


@pytest.mark.parametrize(
    ("make_event", "account"), [(gaussian, "linear"), (gaussian, "rdp"), (gaussian, "pld"), (sampled, "rdp")]
)
def test_constant_plan_uses_the_budget_up_and_no_more(make_event: Callable[[float], Event], account: str) -> None:
    multiplier = plan(make_event, account=account)

    assert 7.99 < epsilon(NOTHING.plus(make_event(multiplier), 20), account) <= 8.0


def test_constant_plan_of_whole_updates_is_the_closed_form() -> None:
    # Releases of the Gaussian mechanism compose to one with the multiplier divided by the root of their number.
    multiplier = plan(planned=25, cap=2.0)

    assert gaussian_delta(multiplier / 5, 2.0) == pytest.approx(DELTA, rel=1e-2)


def test_constant_plan_stays_the_same_whatever_was_spent() -> None:
    spent = NOTHING.plus(gaussian(1.0), 3)

    assert plan(spent=spent, released=19) == plan()


@pytest.mark.parametrize("account", ACCOUNTS)
def test_remaining_plan_repeats_the_constant_one_while_nothing_unforeseen_happens(account: str) -> None:
    history, constant = NOTHING, plan(planned=6, account=account)

    for released in range(6):
        multiplier = plan(spent=history, released=released, planned=6, account=account, schedule="remaining")
        assert multiplier == pytest.approx(constant, rel=1e-3)
        history = history.plus(gaussian(multiplier))

    assert epsilon(history, account) <= 8.0


@settings(max_examples=25, deadline=None)
@given(
    earlier=st.lists(st.floats(2.0, 40.0), max_size=4),
    planned=st.integers(1, 5),
    account=st.sampled_from(["linear", "rdp", "pld"]),
)
def test_remaining_plan_composes_with_any_history_and_never_exceeds_the_cap(
    earlier: list[float], planned: int, account: str
) -> None:
    history = History.of(map(gaussian, earlier))

    for released in range(planned):
        multiplier = plan(
            spent=history, released=released, planned=planned, cap=20.0, account=account, schedule="remaining"
        )
        history = history.plus(gaussian(multiplier))

    assert 0.99 * 20.0 < epsilon(history, account) <= 20.0


def test_remaining_plan_adds_noise_after_costly_releases_and_takes_it_back_after_cheap_ones() -> None:
    usual = plan(planned=10)
    costly, cheap = (History.of([gaussian(usual * factor)] * 4) for factor in (0.8, 2.0))

    after_costly = plan(spent=costly, released=4, planned=10, schedule="remaining")
    after_cheap = plan(spent=cheap, released=4, planned=10, schedule="remaining")

    assert after_cheap < usual < after_costly


@pytest.mark.parametrize("schedule", ["constant", "remaining"])
@pytest.mark.parametrize("released", [20, 21])
def test_plan_that_is_used_up_is_an_exhausted_budget(schedule: str, released: int) -> None:
    with pytest.raises(BudgetExhaustedError, match=f"released={released} < planned=20"):
        plan(spent=NOTHING.plus(gaussian(50.0), released), released=released, schedule=schedule)


def test_remaining_plan_without_anything_left_is_an_exhausted_budget() -> None:
    spent = NOTHING.plus(gaussian(0.5), 2)

    with pytest.raises(BudgetExhaustedError, match=r"less than the cap 8 spent, found epsilon 1\d\."):
        plan(spent=spent, released=2, schedule="remaining")


def test_remaining_plan_that_no_noise_could_meet_is_an_exhausted_budget() -> None:
    spent = NOTHING.plus(gaussian(1.0))
    just_above = epsilon(spent, "rdp") * (1 + 1e-12)

    with pytest.raises(BudgetExhaustedError, match="room for 19 releases"):
        plan(spent=spent, released=1, cap=just_above, account="rdp", schedule="remaining")


def test_multiplier_set_by_hand_is_taken_as_it_is() -> None:
    assert plan(noise_multiplier=0.7, released=99) == 0.7


def test_epsilon_per_release_is_calibrated_by_the_analytic_mechanism() -> None:
    multiplier = plan(release_epsilon=0.2)

    assert gaussian_delta(multiplier, 0.2) == pytest.approx(DELTA, rel=1e-6)


def test_epsilon_per_release_is_calibrated_by_the_classic_formula_on_request() -> None:
    assert plan(release_epsilon=0.2, calibration="classic") == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 0.2)


@pytest.mark.parametrize("cap", [0.0, -1.0, math.nan])
def test_impossible_cap_is_refused(cap: float) -> None:
    with pytest.raises(PrivacyError, match="epsilon"):
        plan(cap=cap)
