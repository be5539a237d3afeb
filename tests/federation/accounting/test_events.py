"""Events survive the wire unchanged, and impossible ones never come to be."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.accounting.events import Event, History, event_as_dict, event_from_dict
from federation.errors import PrivacyError
from tests.federation.accounting.account_contract import gaussian, sampled

noises = st.floats(0, 1e300, exclude_min=True)
events = st.one_of(
    noises.map(gaussian),
    st.builds(sampled, noises, st.floats(0, 1, exclude_min=True), st.integers(1, 10**9)),
)


@given(events)
def test_event_comes_back_from_its_scalars(event: Event) -> None:
    assert event_from_dict(event_as_dict(event)) == event


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "Expected an event of kind gaussian or sampled-gaussian, found None"),
        ({"kind": "laplace"}, "found 'laplace'"),
        ({"kind": "gaussian"}, r"Expected the fields \['noise_multiplier'\], found \[\]"),
        ({"kind": "gaussian", "noise-multiplier": 1.0, "sigma": 2}, r"found \['noise_multiplier', 'sigma'\]"),
        ({"kind": "gaussian", "noise-multiplier": "1"}, r"Expected numbers, found \['noise_multiplier'\]"),
        ({"kind": "gaussian", "noise-multiplier": True}, "Expected numbers"),
        ({"kind": "gaussian", "noise-multiplier": 0}, "Expected a finite noise_multiplier"),
        (
            {"kind": "sampled-gaussian", "noise-multiplier": 1, "sampling-probability": 0.1, "steps": 1.5},
            "Expected steps=1.5 as an integer",
        ),
    ],
)
def test_content_that_is_no_event_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        event_from_dict(content)


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, math.inf])
def test_impossible_noise_is_refused(noise: float) -> None:
    with pytest.raises(PrivacyError, match="Expected a finite noise_multiplier"):
        gaussian(noise)
    with pytest.raises(PrivacyError, match="Expected a finite noise_multiplier"):
        sampled(noise)


@pytest.mark.parametrize(("probability", "steps"), [(0.0, 1), (1.1, 1), (math.nan, 1), (0.5, 0), (0.5, 10**9 + 1)])
def test_impossible_sampling_is_refused(probability: float, steps: int) -> None:
    with pytest.raises(PrivacyError, match="Expected"):
        sampled(1.0, probability, steps)


@given(st.lists(events, max_size=5))
def test_history_counts_every_release_once(happened: list[Event]) -> None:
    history = History.of(happened)

    added = History()
    for event in happened:
        added = added.plus(event)
    assert history == added
    assert history.releases == len(happened)
    assert all(history.counts[event] == happened.count(event) for event in happened)


def test_history_grows_without_changing_and_never_shrinks() -> None:
    history = History.of([gaussian()])

    grown = history.plus(gaussian(), 2).plus(sampled(), 0)

    assert (dict(history.counts), dict(grown.counts)) == ({gaussian(): 1}, {gaussian(): 3})
    with pytest.raises(PrivacyError, match="Expected count=-1 >= 0"):
        history.plus(gaussian(), -1)
