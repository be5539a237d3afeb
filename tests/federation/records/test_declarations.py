"""What a hospital says about its privacy travels unchanged, and anything else is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from flwr.app import ConfigRecord
from hypothesis import given
from hypothesis import strategies as st

from federation.accounting.events import Event, GaussianRelease, Relation, SampledGaussianRelease, Unit
from federation.errors import RefusalCode, RefusalError
from federation.records.declarations import Declaration, decode_declaration, encode_declaration
from federation.records.fields import PROTOCOL_VERSION

POSITIVE = st.floats(1e-6, 1e6)
GAUSSIAN = st.builds(GaussianRelease, noise_multiplier=POSITIVE)
SAMPLED = st.builds(
    SampledGaussianRelease,
    noise_multiplier=POSITIVE,
    sampling_probability=st.floats(1e-6, 1.0),
    steps=st.integers(1, 10**6),
)
KINDS: dict[str, tuple[list[Relation], list[Unit], st.SearchStrategy[Event]]] = {
    "dp-sgd": ([Relation.ADD_REMOVE, Relation.ZERO_OUT], [Unit.RECORD, Unit.PATIENT], SAMPLED),
    "update-gaussian": (list(Relation), [Unit.UPDATE], GAUSSIAN),
    "metrics": (list(Relation), list(Unit), GAUSSIAN),
}


@st.composite
def declarations(draw: st.DrawFn) -> Declaration:
    mechanism = draw(st.sampled_from(sorted(KINDS)))
    relations, units, events = KINDS[mechanism]
    return Declaration(
        mechanism=mechanism,
        relation=draw(st.sampled_from(relations)),
        unit=draw(st.sampled_from(units)),
        clip_norm=draw(POSITIVE),
        event=draw(events),
        delta=draw(st.floats(1e-12, 0.5)),
        account=draw(st.sampled_from(["linear", "rdp", "pld"])),
        spent=draw(POSITIVE),
        cap=draw(POSITIVE),
        releases=draw(st.integers(1, 10**6)),
        uncovered=draw(st.integers(0, 10**6)),
    )


DECLARATION = Declaration(
    mechanism="dp-sgd",
    relation=Relation.ADD_REMOVE,
    unit=Unit.RECORD,
    clip_norm=1.0,
    event=SampledGaussianRelease(noise_multiplier=1.1, sampling_probability=0.1, steps=10),
    delta=1e-5,
    account="pld",
    spent=0.9,
    cap=8.0,
    releases=3,
)


@given(declaration=declarations())
def test_declaration_survives_the_wire(declaration: Declaration) -> None:
    record = ConfigRecord({"protocol": PROTOCOL_VERSION, **encode_declaration(declaration)})

    assert decode_declaration(record) == declaration


def test_unprotected_answer_declares_nothing() -> None:
    assert encode_declaration(None) == {}
    assert decode_declaration({"protocol": PROTOCOL_VERSION}) is None


@pytest.mark.parametrize("key", sorted(encode_declaration(DECLARATION)))
def test_declaration_with_a_part_missing_is_refused(key: str) -> None:
    content = encode_declaration(DECLARATION)
    del content[key]

    with pytest.raises(RefusalError) as caught:
        decode_declaration(content)

    assert caught.value.code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mechanism", "masking"), ("relation", "none"), ("unit", "pixel"), ("account", "prv"),
        ("clip-norm", 0.0), ("clip-norm", -1.0), ("clip-norm", math.inf), ("delta", 0.0), ("delta", 1.0),
        ("delta", math.nan), ("spent", 0.0), ("spent", math.nan), ("spent", -3.0), ("cap", 0.0), ("cap", math.inf),
        ("releases", 0), ("releases", 1.0), ("releases", True), ("uncovered", -1), ("event.noise-multiplier", 0.0),
        ("event.noise-multiplier", -1.0), ("event.noise-multiplier", math.nan), ("event.noise-multiplier", "1"),
        ("event.sampling-probability", 0.0), ("event.sampling-probability", 1.1), ("event.steps", 0),
        ("event.steps", 2.5), ("event.kind", "laplace"), ("event.more", 1.0),
    ],
)  # fmt: skip
def test_impossible_declaration_is_refused(key: str, value: Any) -> None:
    content = encode_declaration(DECLARATION) | {f"privacy.{key}": value}

    with pytest.raises(RefusalError) as caught:
        decode_declaration(content)

    assert caught.value.code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": "none", "event": GaussianRelease(noise_multiplier=1.1)},
        {"relation": Relation.REPLACE_ONE},
        {"unit": Unit.UPDATE},
        {"event": GaussianRelease(noise_multiplier=1.1)},
        {"mechanism": "update-gaussian", "event": GaussianRelease(noise_multiplier=1.1)},
        {"mechanism": "update-gaussian", "unit": Unit.UPDATE},
        {"mechanism": "metrics"},
    ],
    ids=["no mechanism", "dp-sgd that replaces", "dp-sgd for updates", "dp-sgd without sampling",
         "update-gaussian for records", "update-gaussian that samples", "scores that sample"],
)  # fmt: skip
def test_parts_that_do_not_go_together_are_refused(changes: dict[str, Any]) -> None:
    content = encode_declaration(replace(DECLARATION, **changes))

    with pytest.raises(RefusalError) as caught:
        decode_declaration(content)

    assert caught.value.code is RefusalCode.MALFORMED


def test_replacing_one_unit_doubles_the_sensitivity_of_a_clipped_sum() -> None:
    assert [relation.sensitivity(0.5) for relation in Relation] == [0.5, 0.5, 1.0]
    assert replace(DECLARATION, relation=Relation.REPLACE_ONE) != DECLARATION
