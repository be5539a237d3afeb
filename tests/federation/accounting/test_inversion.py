"""How many releases fit, and which noise lets them: the answer fits, the next one does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.accounting.accounts import ACCOUNTS, Account, account_of
from federation.accounting.events import Event, History
from federation.accounting.gaussian import analytic_noise_multiplier
from federation.accounting.inversion import LARGEST_COUNT, largest_count, smallest_noise_multiplier
from federation.errors import PrivacyError
from tests.federation.accounting.account_contract import gaussian, sampled


class Counted:
    """An account that counts how often it is asked."""

    def __init__(self, function: Callable[[History], float]) -> None:
        self.name, self.asked, self.function = "counted", 0, function

    def epsilon(self, history: History, delta: float) -> float:
        self.asked += 1
        return self.function(history)


@pytest.mark.parametrize(("name", "least", "most"), [("linear", 40, 40), ("rdp", 1400, 1500), ("pld", 1501, 1700)])
def test_eight_at_the_seed_noise_is_forty_linear_releases_and_over_a_thousand_composed_ones(
    name: str, least: int, most: int
) -> None:
    count = largest_count(gaussian(24.22), epsilon=8, delta=1e-5, account=account_of(name))

    assert least <= count <= most


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["linear", "rdp", "pld"]),
    noise=st.floats(0.5, 2000),
    epsilon=st.floats(0.05, 50),
    before=st.integers(0, 20),
)
def test_count_fits_and_one_more_does_not(name: str, noise: float, epsilon: float, before: int) -> None:
    account, spent = account_of(name), History().plus(gaussian(30), before)

    count = largest_count(gaussian(noise), epsilon=epsilon, delta=1e-5, account=account, spent=spent)

    assert count == 0 or account.epsilon(spent.plus(gaussian(noise), count), 1e-5) <= epsilon
    assert account.epsilon(spent.plus(gaussian(noise), count + 1), 1e-5) > epsilon


@given(limit=st.integers(0, 10**7), power=st.floats(0.5, 2))
def test_count_is_exact_whatever_the_growth(limit: int, power: float) -> None:
    account = Counted(lambda history: history.releases**power)

    assert largest_count(gaussian(), epsilon=(limit + 0.5) ** power, delta=1e-5, account=account) == limit


@pytest.mark.parametrize("limit", [123_456, 9_999_999])
@pytest.mark.parametrize(("power", "questions"), [(0.5, 12), (1, 8), (2, 26)])
def test_millions_of_releases_take_a_few_questions(limit: int, power: float, questions: int) -> None:
    account = Counted(lambda history: history.releases**power)

    largest_count(gaussian(), epsilon=(limit + 0.5) ** power, delta=1e-5, account=account)

    assert account.asked <= questions


def test_cliff_takes_no_more_questions_than_bisection_and_a_few() -> None:
    account = Counted(lambda history: 1e-9 * history.releases if history.releases < 10**7 else 1e9)

    assert largest_count(gaussian(), epsilon=1, delta=1e-5, account=account) == 10**7 - 1
    assert account.asked <= 50


@given(steps=st.lists(st.integers(1, 10**4), min_size=1, max_size=5))
def test_count_is_exact_on_a_cost_with_steps(steps: list[int]) -> None:
    """The linear account rises in steps; interpolation must not be led astray."""
    account = Counted(lambda history: 0.5 + sum(history.releases >= step for step in steps))

    count = largest_count(gaussian(), epsilon=1.0, delta=1e-5, account=account)

    assert count == min(steps) - 1


def test_releases_that_cost_nothing_fit_as_often_as_anyone_counts() -> None:
    account = Counted(lambda history: 0.0)

    assert largest_count(gaussian(), epsilon=1, delta=1e-5, account=account) == LARGEST_COUNT


def test_nothing_fits_on_top_of_a_spent_budget() -> None:
    spent = History().plus(gaussian(1), 100)

    assert largest_count(gaussian(1e5), epsilon=1, delta=1e-5, account=account_of("rdp"), spent=spent) == 0


def sampled_twenty_times(noise_multiplier: float) -> Event:
    return sampled(noise_multiplier, 0.1, 20)


@pytest.mark.parametrize("account", ACCOUNTS.values(), ids=list(ACCOUNTS))
@pytest.mark.parametrize(
    ("make", "spent"),
    [
        (gaussian, None),
        (gaussian, History().plus(gaussian(40), 5)),
        (sampled_twenty_times, History().plus(gaussian(40), 5)),
        pytest.param(sampled_twenty_times, None, marks=pytest.mark.slow),
        pytest.param(sampled_twenty_times, History.of([sampled(3, 0.02, 100)]), marks=pytest.mark.slow),
    ],
)
def test_noise_suffices_and_a_thousandth_less_does_not(
    account: Account, make: Callable[[float], Event], spent: History | None
) -> None:
    asked: dict[str, Any] = {"releases": 4, "epsilon": 1.0, "delta": 1e-5, "account": account, "spent": spent}

    noise = smallest_noise_multiplier(make, **asked)

    before = spent or History()
    assert account.epsilon(before.plus(make(noise), 4), 1e-5) <= 1.0
    assert account.epsilon(before.plus(make(noise * 0.999), 4), 1e-5) > 1.0


def test_noise_for_one_exact_release_is_the_analytic_one() -> None:
    noise = smallest_noise_multiplier(gaussian, releases=1, epsilon=0.5, delta=1e-6, account=account_of("pld"))

    assert noise == pytest.approx(analytic_noise_multiplier(0.5, 1e-6), rel=3e-4)


def test_noise_on_top_of_what_only_the_tighter_account_can_bear_is_found() -> None:
    """The RDP account, where the search begins, calls the spent budget exceeded; the asked one does not."""
    spent = History().plus(gaussian(4), 1)

    noise = smallest_noise_multiplier(
        gaussian, releases=1, epsilon=0.95, delta=1e-5, account=account_of("pld"), spent=spent
    )

    assert account_of("rdp").epsilon(spent, 1e-5) > 0.95
    assert account_of("pld").epsilon(spent.plus(gaussian(noise)), 1e-5) <= 0.95


def test_noise_that_exceeds_the_budget_by_the_last_bit_is_too_little() -> None:
    def cost(history: History) -> float:
        if not history.releases:
            return 0.0
        return math.nextafter(100.0, math.inf) if min(event.noise_multiplier for event in history.counts) < 2 else 4.0

    noise = smallest_noise_multiplier(gaussian, releases=1, epsilon=100.0, delta=1e-5, account=Counted(cost))

    assert noise == pytest.approx(2.0, rel=2e-4)
    assert noise >= 2


def test_noise_is_refused_where_the_budget_is_spent_or_cannot_be_met() -> None:
    asked: dict[str, Any] = {"releases": 1, "delta": 1e-5, "account": account_of("rdp")}

    with pytest.raises(PrivacyError, match=r"Expected epsilon=1 of at least what was spent before, found"):
        smallest_noise_multiplier(gaussian, epsilon=1, spent=History().plus(gaussian(1)), **asked)
    with pytest.raises(PrivacyError, match=r"Expected a noise multiplier of at most 1e\+06 to suffice"):
        smallest_noise_multiplier(gaussian, epsilon=1e-9, **asked | {"delta": 1e-12})
    with pytest.raises(PrivacyError, match=r"Expected releases=0 >= 1\."):
        smallest_noise_multiplier(gaussian, epsilon=1, **asked | {"releases": 0})


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-5), (-1, 1e-5), (math.nan, 1e-5), (math.inf, 1e-5), (1, 0.0), (1, 1.0), (1, math.nan)],
)
def test_impossible_bounds_are_refused_before_any_account_is_asked(epsilon: float, delta: float) -> None:
    account = Counted(lambda history: 0.0)

    with pytest.raises(PrivacyError, match="Expected"):
        largest_count(gaussian(), epsilon=epsilon, delta=delta, account=account)
    with pytest.raises(PrivacyError, match="Expected"):
        smallest_noise_multiplier(gaussian, releases=1, epsilon=epsilon, delta=delta, account=account)
    assert account.asked == 0
