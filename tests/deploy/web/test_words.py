"""Ages and dates as people say them."""

from __future__ import annotations

import pytest

from deploy.web.words import ago, count, day, in_days, moment, month, no_less, no_more, span

DAY = 86_400


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s ago"),
        (0.4, "0 s ago"),
        (-0.4, "0 s ago"),
        (12.4, "12 s ago"),
        (59.6, "1 min ago"),
        (60, "1 min ago"),
        (119.9, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (DAY - 1, "23 h ago"),
        (DAY, "1 day ago"),
        (2.9 * DAY, "2 days ago"),
        (-30, "in 30 s"),
        (1e300, "more than 100 years ago"),
        (float("inf"), "more than 100 years ago"),
    ],
)
def test_age_is_said_in_its_largest_unit(seconds: float, words: str) -> None:
    assert ago(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (41.5 * DAY, "in 41 days"),
        (DAY, "in 1 day"),
        (DAY - 1, "today"),
        (0, "today"),
        (-1, "less than a day ago"),
        (-DAY, "1 day ago"),
        (-3.5 * DAY, "3 days ago"),
    ],
)
def test_what_ends_is_said_in_whole_days(seconds: float, words: str) -> None:
    assert in_days(seconds) == words


def test_dates_are_utc_and_those_beyond_the_calendar_are_unknown() -> None:
    time = 1_803_893_412  # 2027-03-01 09:30:12 UTC, by date(1).

    assert (day(time), month(time), moment(time)) == ("2027-03-01", "2027-03", "2027-03-01 09:30:12 UTC")
    assert {day(wrong) for wrong in (-1, 1e18, float("nan"), float("inf"))} == {"unknown"}


def test_what_was_spent_is_rounded_up_and_what_is_left_down() -> None:
    assert (no_less(1.0001), no_more(1.9999)) == ("1.001", "1.999")
    assert (no_less(0.3), no_more(0.25)) == ("0.300", "0.250")
    assert (no_less(float("inf")), no_more(float("inf"))) == ("unbounded", "unbounded")


def test_counts_agree_with_their_nouns() -> None:
    assert [count(number, "day") for number in (0, 1, 2)] == ["0 days", "1 day", "2 days"]
    assert count(2, "entry", "entries") == "2 entries"
    assert span(90) == "1 min"
