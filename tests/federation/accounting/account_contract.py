"""What every account keeps, whichever way it counts: one class, which the tests of each account subclass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import MappingProxyType

import pytest

from federation.accounting.accounts import Account, account_of
from federation.accounting.events import Event, GaussianRelease, History, SampledGaussianRelease
from federation.errors import PrivacyError

DELTA = 1e-5
# A share by which numerical error may break an order that holds exactly.
TOLERANCE = 1e-6


def gaussian(noise_multiplier: float = 4.0) -> GaussianRelease:
    return GaussianRelease(noise_multiplier=noise_multiplier)


def sampled(noise_multiplier: float = 4.0, probability: float = 0.1, steps: int = 20) -> SampledGaussianRelease:
    return SampledGaussianRelease(noise_multiplier=noise_multiplier, sampling_probability=probability, steps=steps)


EVENTS: list[Event] = [gaussian(), gaussian(24.22), sampled(), sampled(2, 0.02, 50), sampled(6, 1, 4)]
HISTORIES = [
    History.of([gaussian(9)]),
    History.of([sampled()] * 3),
    History.of([gaussian(9)] * 2 + [gaussian(20), sampled(), sampled(5, 0.2, 3)]),
]


class AccountContract:
    """Subclass it, and name the account."""

    name: str

    @pytest.fixture
    def account(self) -> Account:
        return account_of(self.name)

    def test_nothing_costs_nothing(self, account: Account) -> None:
        assert account.epsilon(History(), DELTA) == 0.0

    @pytest.mark.parametrize("event", EVENTS)
    def test_more_releases_cost_more(self, account: Account, event: Event) -> None:
        costs = [account.epsilon(History().plus(event, count), DELTA) for count in (1, 2, 3, 20)]

        assert costs[0] > 0
        assert all(one < other for one, other in itertools.pairwise(costs))

    @pytest.mark.parametrize("make", [gaussian, sampled])
    def test_more_noise_costs_less(self, account: Account, make: Callable[[float], Event]) -> None:
        costs = [account.epsilon(History().plus(make(noise), 5), DELTA) for noise in (2.0, 2.01, 5.0, 12.0)]

        assert all(one > other for one, other in itertools.pairwise(costs))

    @pytest.mark.parametrize("history", HISTORIES)
    def test_larger_delta_costs_less(self, account: Account, history: History) -> None:
        costs = [account.epsilon(history, delta) for delta in (1e-9, 1e-7, 1e-5, 1e-3, 0.1)]

        assert all(one > other for one, other in itertools.pairwise(costs))

    def test_more_sampling_costs_more(self, account: Account) -> None:
        costs = [account.epsilon(History.of([sampled(4, share, 20)]), DELTA) for share in (0.01, 0.1, 0.3, 1)]

        assert all(one < other for one, other in itertools.pairwise(costs))

    def test_order_does_not_matter(self, account: Account) -> None:
        events: list[Event] = [gaussian(9), sampled(), gaussian(20), sampled(5, 0.2, 3), gaussian(9)]

        costs = {account.epsilon(History.of(order), DELTA) for order in itertools.permutations(events)}

        assert len(costs) == 1

    @pytest.mark.parametrize("history", HISTORIES)
    @pytest.mark.parametrize("event", EVENTS)
    def test_history_costs_at_least_as_much_as_its_part(self, account: Account, history: History, event: Event) -> None:
        before, after = account.epsilon(history, DELTA), account.epsilon(history.plus(event), DELTA)

        assert after >= before * (1 - TOLERANCE)

    @pytest.mark.parametrize("count", [1, 7])
    def test_sampling_everything_is_no_sampling(self, account: Account, count: int) -> None:
        steps = account.epsilon(History().plus(sampled(6, 1, 1), count), DELTA)

        assert steps <= account.epsilon(History().plus(gaussian(6), count), DELTA) * (1 + TOLERANCE)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan, math.inf])
    @pytest.mark.parametrize("history", [History(), HISTORIES[0]])
    def test_impossible_delta_is_refused(self, account: Account, history: History, delta: float) -> None:
        with pytest.raises(PrivacyError, match=r"Expected 0 < delta=.* < 1\."):
            account.epsilon(history, delta)

    def test_tiny_noise_costs_more_than_any_cap_instead_of_failing(self, account: Account) -> None:
        events: list[Event] = [gaussian(1e-200), gaussian(1e-3), sampled(0.01, 0.5, 1000), sampled(1e-3, 1, 10)]

        for event in events:
            assert account.epsilon(History.of([event] * 3), DELTA) > 1e4

    def test_a_billion_releases_are_counted(self, account: Account) -> None:
        history = History(MappingProxyType({gaussian(): 10**9, sampled(4, 0.1, 10**9): 10**9}))

        assert account.epsilon(history, DELTA) > 1e6
