"""Random histories: the accounts keep their order, and RDP and PLD never say less than dp-accounting on its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.accounting.accounts import account_of
from federation.accounting.events import Event, GaussianRelease, History, SampledGaussianRelease
from federation.accounting.reference import reference_epsilon

# By how much PLD may exceed RDP because of numerical error; because of its grid, by what `with_grid` allows.
RELATIVE_TOLERANCE = 0.005
ABSOLUTE_TOLERANCE = 0.001

# A history beyond it would take dp-accounting gigabytes.
LARGEST_EPSILON = 10.0


def logarithmic(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(0, 1).map(lambda share: min(low * (high / low) ** share, high))


def gaussians(least_noise: float) -> st.SearchStrategy[Event]:
    return st.builds(GaussianRelease, noise_multiplier=logarithmic(least_noise, 50))


def releases(least_noise: float) -> st.SearchStrategy[Event]:
    return st.one_of(
        gaussians(least_noise),
        st.builds(
            SampledGaussianRelease,
            noise_multiplier=logarithmic(least_noise, 50),
            sampling_probability=logarithmic(1e-4, 1),
            steps=logarithmic(1, 5000).map(round),
        ),
    )


def histories(events: st.SearchStrategy[Event]) -> st.SearchStrategy[History]:
    counted = st.lists(st.tuples(events, st.integers(1, 50)), min_size=1, max_size=3)
    return counted.map(lambda pairs: History.of(event for event, count in pairs for _ in range(count)))


def with_grid(history: History) -> History:
    """The history, and one release that costs no less than cutting every step's privacy loss on a grid of 1e-4.

    A cut moves a loss between two points 1e-4 apart, which a log-normal factor of deviation 0.64e-4 exceeds.
    """
    steps = sum(count * getattr(event, "steps", 1) for event, count in history.counts.items())
    return history.plus(GaussianRelease(noise_multiplier=1 / (0.64e-4 * steps**0.5)))


def check(history: History, delta: float) -> None:
    linear, rdp = account_of("linear").epsilon(history, delta), account_of("rdp").epsilon(history, delta)
    assert linear >= rdp >= reference_epsilon(history, delta, "rdp")
    if rdp <= LARGEST_EPSILON:
        pld = account_of("pld").epsilon(history, delta)
        allowed = account_of("rdp").epsilon(with_grid(history), delta)
        assert allowed * (1 + RELATIVE_TOLERANCE) + ABSOLUTE_TOLERANCE >= pld
        assert pld >= reference_epsilon(history, delta, "pld")


@settings(max_examples=15, deadline=None)
@given(history=histories(gaussians(2.0)), delta=logarithmic(1e-9, 1e-3))
def test_accounts_keep_their_order_and_are_no_less_than_dp_accounting_on_releases(
    history: History, delta: float
) -> None:
    check(history, delta)


@settings(max_examples=6, deadline=None)
@given(history=histories(releases(5.0)), delta=logarithmic(1e-9, 1e-3))
def test_accounts_keep_their_order_and_are_no_less_than_dp_accounting_with_dp_sgd(
    history: History, delta: float
) -> None:
    check(history, delta)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=1000, deadline=None)
@given(history=histories(releases(0.5)), delta=logarithmic(1e-9, 1e-3))
def test_accounts_keep_their_order_and_are_no_less_than_dp_accounting_a_thousand_times(
    history: History, delta: float
) -> None:
    check(history, delta)


@pytest.mark.parametrize("noise", [5000.0, 1e6])
def test_releases_far_finer_than_the_grid_cost_no_less_than_dp_accounting_says(noise: float) -> None:
    """A thousand kinds of release with privacy losses below the grid's interval, each rounded up to it on its own."""
    history = History.of(GaussianRelease(noise_multiplier=noise + index) for index in range(300))

    epsilon = account_of("pld").epsilon(history, 1e-5)

    assert epsilon >= reference_epsilon(history, 1e-5, "pld")
    assert epsilon < 0.01


def test_releases_composed_one_by_one_cost_no_more_than_the_account_says() -> None:
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    accountants = {"rdp": RdpAccountant(), "pld": PLDAccountant()}
    for accountant in accountants.values():
        for _ in range(50):
            accountant.compose(GaussianDpEvent(30.0))

    history = History().plus(GaussianRelease(noise_multiplier=30.0), 50)
    for name, accountant in accountants.items():
        assert account_of(name).epsilon(history, 1e-5) >= accountant.get_epsilon(1e-5)
