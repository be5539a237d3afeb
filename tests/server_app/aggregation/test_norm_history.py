"""Norms are kept per noise level and hospital, in bounds, and survive a checkpoint as they were."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from server_app.aggregation.norm_history import NormHistory, level_of

NOTES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0, 1e9), st.floats(0, 1e9)),
    max_size=60,
)


def history_of(notes: list[tuple[str, float, float]]) -> NormHistory:
    history = NormHistory()
    for name, variance, norm in notes:
        history.note(name, variance=variance, norm=norm)
    return history


def test_nothing_is_known_of_a_level_without_updates() -> None:
    assert NormHistory().of_level(0.0) == []


def test_norms_are_kept_apart_by_noise_level() -> None:
    history = history_of([("a", 0.0, 1.0), ("a", 4.0, 2.0), ("b", 4.0, 3.0)])

    assert history.of_level(0.0) == [1.0]
    assert history.of_level(4.0) == [2.0, 3.0]
    assert history.of_level(5.0) == []


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

    assert history.of_level(0.0) == [float(number) for number in range(15, 25)]


def test_fast_hospital_cannot_push_out_the_norms_of_slow_ones() -> None:
    slow = [(f"slow-{number}", 0.0, 1.0) for number in range(3) for _ in range(5)]
    history = history_of([*slow, *[("fast", 0.0, 1e6)] * 1000])

    assert history.of_level(0.0).count(1.0) == 15
    assert statistics.median(history.of_level(0.0)) == 1.0


def test_norms_in_all_are_bounded_and_the_level_unused_for_longest_goes_first() -> None:
    history = NormHistory()
    for level in range(1, 204):
        history.note("a", variance=1.0, norm=1.0)
        for _ in range(10):
            history.note("a", variance=10.0**-level, norm=1.0)

    assert sum(len(norms) for level in history.levels.values() for norms in level.values()) <= 2000
    assert len(history.of_level(1.0)) == 10
    assert len(history.of_level(1e-203)) == 10
    assert history.of_level(0.1) == []


def test_only_level_is_kept_however_many_hospitals_there_are() -> None:
    history = history_of([(f"h{number}", 0.0, 1.0) for number in range(300) for _ in range(10)])

    assert len(history.of_level(0.0)) == 3000


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
