"""Norms are kept per noise level and hospital, in bounds, and survive a checkpoint as they were."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from server_app.aggregation.norm_history import NormHistory, comparable_norms, level_of

NOTES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0, 1e9), st.floats(0, 1e9)),
    max_size=60,
)


def history_of(notes: list[tuple[str, float, float]]) -> NormHistory:
    history = NormHistory()
    for name, variance, norm in notes:
        history.note(name, variance=variance, norm=norm)
    return history


def at_level(history: NormHistory, variance: float) -> list[float]:
    return [norm for norms in history.levels.get(level_of(variance), {}).values() for norm in norms]


def test_nothing_is_known_of_a_level_without_updates() -> None:
    assert at_level(NormHistory(), 0.0) == []


def test_norms_are_kept_apart_by_noise_level() -> None:
    history = history_of([("a", 0.0, 1.0), ("a", 4.0, 2.0), ("b", 4.0, 3.0)])

    assert at_level(history, 0.0) == [1.0]
    assert at_level(history, 4.0) == [2.0, 3.0]
    assert at_level(history, 5.0) == []


@pytest.mark.parametrize(
    ("one", "other", "same"), [(1.21, 1.24, True), (1.21, 1.26, False), (1.2, 12.0, False), (0.0, 1e-300, False)]
)
def test_level_is_the_variance_to_two_digits(one: float, other: float, same: bool) -> None:
    assert (level_of(one) == level_of(other)) is same


@given(st.floats(1e-300, 1e300), st.floats(1e-300, 1e300))
def test_variances_of_one_level_differ_by_at_most_a_tenth(one: float, other: float) -> None:
    if level_of(one) == level_of(other):
        assert max(one, other) / min(one, other) < 1.11


def test_hospital_keeps_its_last_ten_norms() -> None:
    history = history_of([("a", 0.0, float(number)) for number in range(25)])

    assert at_level(history, 0.0) == [float(number) for number in range(15, 25)]


def test_fast_hospital_cannot_push_out_the_norms_of_slow_ones() -> None:
    slow = [(f"slow-{number}", 0.0, 1.0) for number in range(3) for _ in range(5)]
    history = history_of([*slow, *[("fast", 0.0, 1e6)] * 1000])

    assert at_level(history, 0.0).count(1.0) == 15
    assert statistics.median(at_level(history, 0.0)) == 1.0


def test_norms_in_all_are_bounded_and_the_level_unused_for_longest_goes_first() -> None:
    history = NormHistory()
    for level in range(1, 204):
        history.note("a", variance=1.0, norm=1.0)
        for _ in range(10):
            history.note("a", variance=10.0**-level, norm=1.0)

    assert sum(len(norms) for level in history.levels.values() for norms in level.values()) <= 2000
    assert len(at_level(history, 1.0)) == 10
    assert len(at_level(history, 1e-203)) == 10
    assert at_level(history, 0.1) == []


def test_only_level_is_kept_however_many_hospitals_there_are() -> None:
    history = history_of([(f"h{number}", 0.0, 1.0) for number in range(300) for _ in range(10)])

    assert len(at_level(history, 0.0)) == 3000


@pytest.mark.parametrize("norm", [math.inf, -math.inf, math.nan])
def test_norm_that_is_not_finite_is_left_out(norm: float) -> None:
    assert history_of([("a", 0.0, norm)]) == NormHistory()


@given(NOTES)
def test_checkpoint_brings_back_the_same_history_in_the_same_order(notes: list[tuple[str, float, float]]) -> None:
    history = history_of(notes)

    restored = NormHistory.model_validate_json(history.model_dump_json())

    assert restored == history
    assert restored.model_dump_json() == history.model_dump_json()


@pytest.mark.parametrize("text", ['{"level": {}}', '{"levels": {"1": {"a": [null]}}}', '{"levels": []}'])
def test_history_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        NormHistory.model_validate_json(text)


def test_update_is_compared_with_its_own_level_where_enough_hospitals_are() -> None:
    history = history_of([*[(name, 4.0, 2.0) for name in "abc" for _ in range(3)], ("d", 4.1, 9.0)])

    assert comparable_norms(history.levels, 4.0) == [2.0] * 9


def test_hospital_alone_at_its_level_is_compared_with_the_nearest_ones() -> None:
    near = [(name, 4.0, 2.0) for name in "abc" for _ in range(4)]
    far = [(name, 400.0, 20.0) for name in "xyz" for _ in range(4)]
    history = history_of([*far, *near, *[("alone", 4.1, 7.0)] * 10])

    assert sorted(comparable_norms(history.levels, 4.1)) == pytest.approx([math.sqrt(4.1 / 4) * 2] * 12 + [7.0] * 10)


def test_norms_under_more_noise_are_compared_as_they_are() -> None:
    history = history_of([(name, 4.0, 2.0) for name in "abc" for _ in range(3)])

    assert comparable_norms(history.levels, 1.0) == [2.0] * 9


def test_hospital_with_many_levels_of_its_own_does_not_crowd_out_the_others() -> None:
    own = [("crowd", variance, 50.0) for variance in (4.1, 4.2, 4.3, 4.4, 4.5) for _ in range(10)]
    history = history_of([*[(name, 4.0, 2.0) for name in "abc" for _ in range(10)], *own])

    assert sorted(comparable_norms(history.levels, 4.5)).count(50.0) == 10
    assert statistics.median(comparable_norms(history.levels, 4.5)) < 3


def test_updates_with_and_without_noise_are_never_compared() -> None:
    history = history_of([(name, variance, 1.0) for name in "abc" for variance in (0.0, 4.0) for _ in range(3)])

    assert len(comparable_norms(history.levels, 0.0)) == len(comparable_norms(history.levels, 4.0)) == 9
    assert comparable_norms(history_of([("a", 0.0, 1.0)]).levels, 4.0) == []
