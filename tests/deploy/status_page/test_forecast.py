"""The forecast, against closed forms: under the linear account n releases cost n times the price of one."""

from __future__ import annotations

import math

import pytest

from client_app.ledger.release import ReleaseRequest
from deploy.status_page.forecast import Forecast, foresee, releases_left, tell
from federation.accounting.accounts import account_of
from federation.accounting.events import Event, GaussianRelease, History
from federation.accounting.inversion import LARGEST_COUNT
from tests.client_app.ledger.place import request

DAY = 86_400.0
NOW = 1_800_000_000.0
DELTA = 1e-5


def classic_price(noise_multiplier: float) -> float:
    """What the linear account charges for a Gaussian release: sqrt(2 ln(1.25 / delta)) / sigma, in four digits."""
    return float(f"{math.sqrt(2 * math.log(1.25 / DELTA)) / noise_multiplier:.4g}")


@pytest.mark.parametrize("done", [0, 1, 7, 19, 20])
@pytest.mark.parametrize("cap", [2.0, 8.0])
def test_linear_account_leaves_the_whole_number_of_prices_below_the_cap(done: int, cap: float) -> None:
    event = GaussianRelease(noise_multiplier=20.0)

    left = releases_left(request(event=event, cap=cap), History().plus(event, done))

    assert left == max(0, math.floor(cap / classic_price(20.0)) - done)


@pytest.mark.parametrize("account", ["linear", "rdp", "pld"])
def test_so_many_fit_and_one_more_does_not(account: str) -> None:
    spent: History = History().plus(GaussianRelease(noise_multiplier=30.0), 3)
    event = GaussianRelease(noise_multiplier=9.0)

    left = releases_left(request(event=event, cap=2.0, account=account), spent)

    cost = account_of(account).epsilon
    assert cost(spent.plus(event, left), DELTA) <= 2.0 < cost(spent.plus(event, left + 1), DELTA)


def test_nothing_is_left_where_more_was_spent_than_the_cap() -> None:
    event: Event = GaussianRelease(noise_multiplier=2.0)

    assert releases_left(request(event=event, cap=1.0), History().plus(event, 5)) == 0


def test_release_without_mechanism_costs_no_epsilon() -> None:
    free: ReleaseRequest = request(event=None)

    assert releases_left(free, History()) == LARGEST_COUNT


def test_pace_of_the_last_thirty_days_says_when_the_budget_ends() -> None:
    old = [NOW - 300 * DAY + hour for hour in range(50)]
    recent = [NOW - day * DAY for day in (1, 2, 3, 10, 29, 30)]

    found = foresee(12, [*old, *recent], NOW)

    assert (found.recent, found.window_days) == (6, 30)
    assert found.runs_out == pytest.approx(NOW + 12 * 30 / 6 * DAY)


def test_window_of_a_young_ledger_is_its_age() -> None:
    found = foresee(10, [NOW - 4 * DAY, NOW - DAY], NOW)

    assert (found.recent, found.window_days) == (2, 4)
    assert found.runs_out == pytest.approx(NOW + 10 * 4 / 2 * DAY)


def test_first_hours_count_as_a_whole_day() -> None:
    found = foresee(10, [NOW - 3600, NOW - 60], NOW)

    assert found.window_days == 1
    assert found.runs_out == pytest.approx(NOW + 10 / 2 * DAY)


def test_releases_dated_in_the_future_do_not_count() -> None:
    assert foresee(10, [NOW + DAY], NOW).recent == 0


def test_without_a_recent_release_there_is_no_date() -> None:
    assert foresee(10, [NOW - 31 * DAY], NOW).runs_out is None


@pytest.mark.parametrize(
    ("forecast", "sentence"),
    [
        (
            Forecast(more=60, recent=30, window_days=30, runs_out=NOW + 60 * DAY),
            "At the price of the last release 60 more releases will fit; at the pace of the last 30 days the budget "
            "lasts until about 2027-03.",
        ),
        (
            Forecast(more=1, recent=2, window_days=1, runs_out=NOW + DAY),
            "At the price of the last release 1 more release will fit; at the pace of the last day the budget lasts "
            "until about 2027-01.",
        ),
        (
            Forecast(more=3, recent=0, window_days=30, runs_out=None),
            "At the price of the last release 3 more releases will fit; nothing was released in the last 30 days.",
        ),
        (
            Forecast(more=0, recent=3, window_days=30, runs_out=NOW),
            "At the price of the last release nothing more fits: the next one would be refused.",
        ),
        (
            Forecast(more=LARGEST_COUNT, recent=1, window_days=30, runs_out=NOW + LARGEST_COUNT * 30 * DAY),
            "At the price of the last release there is no end in sight; at the pace of the last 30 days that lasts for "
            "more than 100 years.",
        ),
    ],
)
def test_forecast_is_one_sentence(forecast: Forecast, sentence: str) -> None:
    assert tell(forecast, NOW) == sentence
