"""The three accounts: the contract for each, and what each promises beyond it."""

from __future__ import annotations

import itertools
import math
from types import MappingProxyType

import pytest

from federation.accounting.accounts import ACCOUNTS, account_of
from federation.accounting.events import Event, History
from federation.accounting.gaussian import gaussian_epsilon
from federation.accounting.linear import release_cost
from federation.accounting.reference import reference_epsilon
from federation.errors import PrivacyError
from tests.federation.accounting.account_contract import DELTA, AccountContract, gaussian, sampled


class TestLinearAccount(AccountContract):
    name = "linear"

    def test_forty_releases_at_a_fifth_fill_eight_exactly(self) -> None:
        history = History().plus(gaussian(24.22), 40)

        assert account_of("linear").epsilon(history, DELTA) == 8.0

    def test_three_tenths_add_up_as_decimals_do(self) -> None:
        tenth = gaussian(math.sqrt(2 * math.log(1.25 / DELTA)) / 0.1)

        assert account_of("linear").epsilon(History().plus(tenth, 3), DELTA) == 0.3

    def test_release_costs_the_classic_epsilon_up_to_one_and_never_less_than_the_exact_one(self) -> None:
        factor = math.sqrt(2 * math.log(1.25 / DELTA))

        for epsilon in (0.01, 0.123456, 0.9):
            assert release_cost(gaussian(factor / epsilon), DELTA) == pytest.approx(epsilon, rel=5e-4)
        assert release_cost(gaussian(factor / 1.2), DELTA) == 1.0
        assert release_cost(gaussian(factor / 8), DELTA) == gaussian_epsilon(factor / 8, DELTA) > 1

    @pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2, 0.5, 0.99])
    def test_cost_never_rises_with_noise_nor_falls_below_the_exact_one(self, delta: float) -> None:
        noises = [0.1 * 1.05**power for power in range(200)]

        costs = [release_cost(gaussian(noise), delta) for noise in noises]

        assert all(one >= other for one, other in itertools.pairwise(costs))
        assert all(cost >= gaussian_epsilon(noise, delta) for noise, cost in zip(noises, costs, strict=True))

    def test_release_of_dp_sgd_costs_the_smaller_of_both_proven_numbers(self) -> None:
        for event in (sampled(), sampled(30, 1e-4, 5000)):
            own = [account_of(name).epsilon(History.of([event]), DELTA) for name in ("rdp", "pld")]

            assert release_cost(event, DELTA) == min(own)

    def test_account_is_at_least_the_rdp_account_where_the_sum_is_not(self) -> None:
        event = sampled()

        assert release_cost(event, DELTA) < account_of("rdp").epsilon(History.of([event]), DELTA)
        assert account_of("linear").epsilon(History.of([event]), DELTA) == account_of("rdp").epsilon(
            History.of([event]), DELTA
        )


class TestRdpAccount(AccountContract):
    name = "rdp"

    def test_it_is_looser_than_the_exact_epsilon_of_a_single_release(self) -> None:
        assert account_of("rdp").epsilon(History.of([gaussian()]), DELTA) > 1.09 * gaussian_epsilon(4.0, DELTA)

    def test_steps_lost_to_cancellation_still_cost_what_they_cost_together(self) -> None:
        """One costs a divergence of about alpha q^2 / (2 sigma^2) = alpha 5e-25, which no double near 1 can hold.

        So many of them are one Gaussian release with noise multiplier sigma / (q sqrt(steps)) = 1000.
        """
        history = History(MappingProxyType({sampled(1e4, 1e-8, 10**9): 10**9}))

        assert reference_epsilon(history, DELTA, "rdp") == 0.0
        assert account_of("rdp").epsilon(history, DELTA) >= gaussian_epsilon(1000.0, DELTA) > 0

    def test_nothing_is_logged_about_orders_left_out(self, caplog: pytest.LogCaptureFixture) -> None:
        history = History.of([sampled(0.8, 0.06, 3)])

        said = account_of("rdp").epsilon(history, DELTA), reference_epsilon(history, DELTA, "rdp")

        assert said[0] == pytest.approx(said[1])
        assert not caplog.records


class TestPldAccount(AccountContract):
    name = "pld"

    def test_gaussian_releases_cost_what_one_with_their_joint_noise_costs(self) -> None:
        events: list[Event] = [gaussian(5)] * 4 + [gaussian(20)] * 16 + [sampled(10, 1, 25)]
        joint = (4 / 25 + 16 / 400 + 25 / 100) ** -0.5

        assert account_of("pld").epsilon(History.of(events), DELTA) == pytest.approx(
            gaussian_epsilon(joint, DELTA), rel=1e-4
        )

    def test_hopeless_histories_are_left_to_the_rdp_account(self) -> None:
        history = History().plus(sampled(0.6, 0.1, 5000), 50)

        assert account_of("pld").epsilon(history, DELTA) == account_of("rdp").epsilon(history, DELTA) > 40

    def test_delta_within_reach_of_numerical_error_is_left_to_the_rdp_account(self) -> None:
        history = History.of([sampled()])

        assert account_of("pld").epsilon(history, 1e-12) == account_of("rdp").epsilon(history, 1e-12)
        assert account_of("pld").epsilon(history, 1e-11) < account_of("rdp").epsilon(history, 1e-11)


def test_accounts_are_found_by_name() -> None:
    assert [account_of(name).name for name in ("linear", "rdp", "pld")] == list(ACCOUNTS)
    with pytest.raises(PrivacyError, match="Expected an account named linear, rdp, pld, found 'prv'"):
        account_of("prv")


@pytest.mark.parametrize("event", [gaussian(0.8), gaussian(4), gaussian(24.22), sampled(), sampled(2, 0.02, 50)])
@pytest.mark.parametrize("count", [1, 20])
def test_linear_says_at_least_rdp_which_says_at_least_pld(event: Event, count: int) -> None:
    linear, rdp, pld = (account.epsilon(History().plus(event, count), DELTA) for account in ACCOUNTS.values())

    assert linear >= rdp >= pld > 0
