"""What cannot be aggregated is refused before a run starts, and the error names the key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.config import AggregationConfig, parse_configuration
from federation.errors import ConfigurationError

ASYNCHRONOUS = ["fedasync", "buffered", "semi-synchronous"]


def problem_of(**settings: Any) -> str:
    """Return the one line of the error that keys of the `aggregation` table (or `table.key`) raise."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration({key if "." in key else f"aggregation.{key}": value for key, value in settings.items()})
    (line,) = str(caught.value).splitlines()
    return line


def accepted(**settings: Any) -> AggregationConfig:
    return parse_configuration({f"aggregation.{key}": value for key, value in settings.items()}).aggregation


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("staleness-alpha", 0.0, "greater than 0"),
        ("staleness-alpha", -0.5, "greater than 0"),
        ("staleness-alpha", 1.0000001, "less than or equal to 1"),
        ("staleness-alpha", float("nan"), "finite number"),
        ("staleness-exponent", -0.1, "greater than or equal to 0"),
        ("staleness-exponent", 11.0, "less than or equal to 10"),
        ("staleness-slope", -1.0, "greater than or equal to 0"),
        ("staleness-slope", float("inf"), "finite number"),
        ("staleness-grace", -1, "greater than or equal to 0"),
        ("max-staleness", -1, "greater than or equal to 0"),
        ("max-staleness", 0.5, "valid integer"),
        ("staleness", "linear", "'constant', 'exponential', 'polynomial' or 'hinge'"),
        ("rule", "fedbuff", "'fedavg', 'fedasync', 'buffered' or 'semi-synchronous'"),
        ("release", "three-phase", "'immediate' or 'two-phase'"),
        ("buffer-size", 0, "greater than or equal to 1"),
        ("period-s", 0.0, "greater than 0"),
        ("period-s", -60.0, "greater than 0"),
        ("period-s", float("inf"), "finite number"),
        ("max-lead", -1, "greater than or equal to 0"),
        ("noise-weighting", "yes", "valid boolean"),
        ("direction-scaling", 1, "valid boolean"),
        ("anomaly-threshold", -3.5, "greater than or equal to 0"),
        ("anomaly-threshold", float("nan"), "finite number"),
        ("balance", 1.5, "less than or equal to 1"),
        ("balance", -0.5, "greater than or equal to 0"),
        ("balance-limit", 0.5, "greater than or equal to 1"),
    ],
)
def test_value_out_of_bounds_is_refused_with_its_key_and_its_bound(key: str, value: object, expected: str) -> None:
    problem = problem_of(**{key: value})

    assert problem.startswith(f"aggregation.{key}={value!r}: Input should be ")
    assert expected in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("staleness-alpha", 1.0),
        ("staleness-alpha", 1e-9),
        ("max-staleness", 0),
        ("staleness-exponent", 0.0),
        ("staleness-slope", 0.0),
        ("staleness-grace", 0),
        ("buffer-size", 1),
        ("anomaly-threshold", 0.0),
        ("balance", 1.0),
        ("balance-limit", 1.0),
    ],
)
def test_value_at_its_bound_is_accepted(key: str, value: float) -> None:
    assert getattr(accepted(**{key: value}), key.replace("-", "_")) == value


def test_buffer_larger_than_the_hospitals_is_refused() -> None:
    settings = {"rule": "buffered", "buffer-size": 5}

    assert problem_of(**settings, **{"run.hospitals": 4}) == "Expected aggregation.buffer-size=5 <= run.hospitals=4."


@pytest.mark.parametrize(
    ("rule", "hospitals"),
    [pytest.param("buffered", 5, id="as many"), pytest.param("buffered", 0, id="any"), pytest.param("fedasync", 4)],
)
def test_buffer_that_can_fill_or_is_not_used_is_accepted(rule: str, hospitals: int) -> None:
    flat = {"aggregation.rule": rule, "aggregation.buffer-size": 5, "run.hospitals": hospitals}

    assert parse_configuration(flat).aggregation.buffer_size == 5


def test_buffer_smaller_than_the_fewest_updates_is_refused() -> None:
    problem = problem_of(**{"rule": "buffered", "buffer-size": 2, "min-updates": 3})

    assert problem == "aggregation: Expected min-updates=3 <= buffer-size=2."


def test_update_that_makes_a_version_by_itself_is_enough_for_one() -> None:
    problem = problem_of(**{"rule": "fedasync", "min-updates": 2})

    assert problem == "aggregation: Expected min-updates=1 with rule='fedasync', found 2."


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_deadline_without_rounds_is_refused(rule: str) -> None:
    problem = problem_of(**{"rule": rule, "deadline-s": 60.0})

    assert problem == f"aggregation: Expected deadline-s=0 with rule={rule!r}, found 60: no rounds."


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_checkpoints_left_out_are_refused_where_hospitals_work_on_older_versions(rule: str) -> None:
    problem = problem_of(**{"rule": rule, "run.checkpoint-every": 2})

    assert problem.startswith(f"Expected run.checkpoint-every=1 with aggregation.rule={rule!r}, found 2")


def test_rounds_may_have_a_deadline_and_leave_out_checkpoints() -> None:
    flat = {"aggregation.rule": "fedavg", "aggregation.deadline-s": 60.0, "run.checkpoint-every": 2}

    assert parse_configuration(flat).aggregation.is_synchronous


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_other_rules_are_asynchronous(rule: str) -> None:
    assert not accepted(rule=rule).is_synchronous


@pytest.mark.parametrize(
    "part",
    ["a", "a=", "=0.5", "a=b", "a=-0.1", "a=1.1", "a=nan", "a=inf", "a=0.1=0.2", "a b=0.1", "../a=0.1", "a=0,1"],
)
def test_shift_that_is_none_is_refused_and_named(part: str) -> None:
    text = f"good=0.5,{part}"

    assert problem_of(shifts=text) == (
        f"aggregation.shifts={text!r}: Expected hospital=shift with a shift in [0, 1], found "
        f"{part.rpartition(',')[2]!r}."
    )


def test_two_shifts_of_one_hospital_are_refused() -> None:
    assert "found several of a" in problem_of(shifts="a=0.1,b=0.2,a=0.3")


def test_shifts_are_read_with_or_without_blanks() -> None:
    assert accepted(shifts=" north = 0.25 ,east=1, ").shift_by_hospital == {"north": 0.25, "east": 1.0}
    assert accepted().shift_by_hospital == {}


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), st.floats(0, 1), max_size=5))
def test_shifts_are_read_exactly_as_they_are_written(shifts: dict[str, float]) -> None:
    text = ",".join(f"{name}={shift!r}" for name, shift in shifts.items())

    assert accepted(shifts=text).shift_by_hospital == shifts
