"""Ages, dates and counts as people say them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_LONGEST_S = 100 * 365 * _DAY_S
_LATEST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def ago(seconds: float) -> str:
    """Return how long ago something was: "12 s ago", "3 min ago", "5 h ago", "2 days ago"; "in 12 s" for the future."""
    return f"in {span(-seconds)}" if seconds < -0.5 else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """Return a length of time of at least 0 in its largest whole unit, rounded down but for seconds."""
    if not seconds < _LONGEST_S:
        return "more than 100 years"
    if seconds < _MINUTE_S - 0.5:
        return f"{round(seconds)} s"
    if seconds < _HOUR_S:
        return f"{max(1, int(seconds // _MINUTE_S))} min"
    if seconds < _DAY_S:
        return f"{int(seconds // _HOUR_S)} h"
    return count(int(seconds // _DAY_S), "day")


def in_days(seconds: float) -> str:
    """Return when something will be, or was: "in 41 days", "in 1 day", "today", "3 days ago"; whole days only."""
    days = math.floor(abs(seconds) / _DAY_S)
    if days == 0:
        return "today" if seconds >= 0 else "less than a day ago"
    return f"in {count(days, 'day')}" if seconds > 0 else f"{count(days, 'day')} ago"


def day(time: float) -> str:
    """Return the UTC date of `time`, in seconds since 1970, as 2027-03-01; "unknown" beyond the calendar."""
    return _format(time, "%Y-%m-%d")


def month(time: float) -> str:
    """Return the UTC month of `time`, in seconds since 1970, as 2027-03; "unknown" beyond the calendar."""
    return _format(time, "%Y-%m")


def moment(time: float) -> str:
    """Return `time`, in seconds since 1970, as 2027-03-01 09:30:12 UTC; "unknown" beyond the calendar."""
    return _format(time, "%Y-%m-%d %H:%M:%S UTC")


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `number` and its noun: "1 day", "2 days", "2 entries" where `plural` says so."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def no_less(value: float) -> str:
    """Return `value` in three decimals, rounded up: what was spent is never shown as less."""
    return f"{math.ceil(value * 1000 - 1e-6) / 1000:.3f}" if math.isfinite(value) else "unbounded"


def no_more(value: float) -> str:
    """Return `value` in three decimals, rounded down: what is left is never shown as more."""
    return f"{math.floor(value * 1000) / 1000:.3f}" if math.isfinite(value) else "unbounded"


def _format(time: float, pattern: str) -> str:
    if not 0 <= time <= _LATEST_S:
        return "unknown"
    return datetime.fromtimestamp(time, UTC).strftime(pattern)
