from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_app.report.formats import show_bytes, show_count, show_duration, show_epsilon, show_reasons, show_share
from server_app.report.order import natural_key


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1\u202f023 bytes"),
        (1024, "1.00 KiB"),
        (10_240, "10.0 KiB"),
        (1_023_000, "999 KiB"),
        (1_024_000, "0.98 MiB"),
        (1_048_576, "1.00 MiB"),
        (5 * 1024**3, "5.00 GiB"),
        (5000 * 1024**5, "5000 PiB"),
    ],
)
def test_sizes_have_the_unit_people_use(size: int, text: str) -> None:
    assert show_bytes(size).text == text


def test_size_has_its_exact_number_as_title() -> None:
    assert show_bytes(1_234_567).title == "1\u202f234\u202f567 bytes"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0421, "0.0421 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (754.3, "12 min 34 s"),
        (3599.6, "1 h 00 min"),
        (7384.0, "2 h 03 min"),
        (90_000.0, "1 d 1 h"),
    ],
)
def test_durations_have_the_units_people_use(seconds: float, text: str) -> None:
    assert show_duration(seconds).text == text


def test_missing_duration_says_why() -> None:
    value = show_duration(None, "no clock")

    assert (value.text, value.title, value.missing) == ("\u2013", "no clock", True)


def test_share_keeps_the_scale_of_the_summary() -> None:
    assert show_share(0.8125, "").text == "0.812"


@pytest.mark.parametrize("share", [None, math.nan, math.inf])
def test_missing_or_broken_share_is_a_dash_with_a_reason(share: float | None) -> None:
    value = show_share(share, "not evaluated")

    assert value.text == "\u2013"
    assert value.missing
    assert value.title


@given(st.floats(min_value=0.0, max_value=1000.0))
def test_epsilon_is_never_shown_smaller_than_it_is(epsilon: float) -> None:
    shown = Fraction(show_epsilon(epsilon, 1e-5).text)

    assert shown >= Fraction(epsilon) - Fraction(1, 10**9)
    assert shown <= Fraction(epsilon) + Fraction(1, 1000)


def test_epsilon_stands_beside_its_delta() -> None:
    assert show_epsilon(0.3, 1e-5).text == "0.300"
    assert show_epsilon(0.3, 1e-5).detail == "at \u03b4 = 1e-05"


@pytest.mark.parametrize("epsilon", [None, math.inf, math.nan])
def test_epsilon_that_is_no_bound_is_no_guarantee(epsilon: float | None) -> None:
    assert show_epsilon(epsilon, 1e-5).text == "no guarantee"


def test_reasons_are_listed_most_frequent_first_and_only_if_they_occurred() -> None:
    assert show_reasons({"b": 2, "a": 2, "c": 1200, "d": 0}) == ["c 1\u202f200", "a 2", "b 2"]


def test_count_sets_thousands_apart() -> None:
    assert show_count(1_234_567).text == "1\u202f234\u202f567"


@given(st.lists(st.integers(min_value=0, max_value=10**40), unique=True))
def test_numbers_in_names_are_ordered_as_numbers(numbers: list[int]) -> None:
    names = sorted((f"hospital-{number}" for number in numbers), key=natural_key)

    assert names == [f"hospital-{number}" for number in sorted(numbers)]


@given(st.lists(st.text(), unique=True))
def test_order_of_names_does_not_depend_on_their_order_before(names: list[str]) -> None:
    backwards = names[::-1]

    assert sorted(backwards, key=natural_key) == sorted(names, key=natural_key)
