"""How long a privacy budget will last, if what happened lately goes on."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from client_app.ledger.release import ReleaseRequest
from deploy.web.words import count, month
from federation.accounting.accounts import account_of
from federation.accounting.events import Event, History
from federation.accounting.inversion import LARGEST_COUNT, largest_count

WINDOW_DAYS = 30
_DAY_S = 86_400.0
_LONGEST_YEARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What follows from the price of the last release and the pace of the last days.

    Attributes:
        more: releases like the last one that still fit below the cap.
        recent: releases in the window.
        window_days: length of the window: 30, less where the first release is younger, at least 1.
        runs_out: when the last one that fits will have been made, in seconds since 1970; None where none was recent.
    """

    more: int
    recent: int
    window_days: float
    runs_out: float | None


def releases_left(request: ReleaseRequest, spent: History) -> int:
    """Return how many releases at the price of `request` fit below its cap on top of `spent`, by the account it names.

    Guarantee: that many more releases of its event cost at most its cap by that account, and one more costs more; 0
        also stands for a cap that is exceeded already, 10^9 for any larger number.
    Not guaranteed: that a run asks for them: its noise, its cap or the account may be others, and so the price.

    Args:
        request: a protected release.
        spent: everything that was ever released from its data set.
    """
    if request.event is None:
        return LARGEST_COUNT
    counts = frozenset(spent.counts.items())
    return _fitting(request.event, request.cap, request.delta, request.account, counts)


@functools.lru_cache(maxsize=64)
def _fitting(event: Event, cap: float, delta: float, account: str, counts: frozenset[tuple[Event, int]]) -> int:
    """Remembered, because the tightest account takes seconds and the page is made every ten."""
    spent = History(MappingProxyType(dict(counts)))
    return largest_count(event, epsilon=cap, delta=delta, account=account_of(account), spent=spent)


def foresee(more: int, times: Iterable[float], now: float) -> Forecast:
    """Return when `more` releases will have been made at the pace of the last 30 days.

    Args:
        more: releases that still fit.
        times: of all releases so far, in seconds since 1970.
        now: likewise.
    """
    past = [time for time in times if time <= now]
    age_days = (now - min(past)) / _DAY_S if past else 0.0
    window_days = min(WINDOW_DAYS, max(1.0, age_days))
    recent = sum(time >= now - window_days * _DAY_S for time in past)
    runs_out = now + more * window_days * _DAY_S / recent if recent else None
    return Forecast(more=more, recent=recent, window_days=window_days, runs_out=runs_out)


def tell(forecast: Forecast, now: float) -> str:
    """Return the forecast in one sentence."""
    if forecast.more == 0:
        return "At the price of the last release nothing more fits: the next one would be refused."
    fits = f"At the price of the last release {count(forecast.more, 'more release')} will fit"
    if forecast.more >= LARGEST_COUNT:
        fits = "At the price of the last release there is no end in sight"
    days = round(forecast.window_days)
    window = f"the last {days} days" if days > 1 else "the last day"
    if forecast.runs_out is None:
        return f"{fits}; nothing was released in {window}."
    if forecast.runs_out - now > _LONGEST_YEARS * 365 * _DAY_S:
        return f"{fits}; at the pace of {window} that lasts for more than {_LONGEST_YEARS} years."
    return f"{fits}; at the pace of {window} the budget lasts until about {month(forecast.runs_out)}."
