"""An attack is handed what it declared and nothing else, and is refused in words where the threat model lacks it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.linear_leakage.robbing_the_fed import RobbingTheFed
from attacks.threat_model import (
    CONTROLS,
    KNOWLEDGE,
    Control,
    Knowledge,
    Needs,
    ServerView,
    Sight,
    ThreatModel,
    grant,
)
from federation.errors import DataError
from tests.attacks.made_up_worlds import make_view

VIEW = make_view(auxiliary=3, generated=2)
FIELDS: dict[str, Knowledge] = {
    "auxiliary": "auxiliary",
    "auxiliary_labels": "auxiliary",
    "hyperparameters": "hyperparameters",
    "generated": "generator",
}
controls = st.frozensets(st.sampled_from(sorted(CONTROLS)))
knowledge = st.frozensets(st.sampled_from(sorted(KNOWLEDGE)))
rounds = st.integers(1, 4)
sights: st.SearchStrategy[Sight] = st.sampled_from(["update", "aggregate"])
needs_of_any_kind = st.builds(Needs, controls=controls, knows=knowledge, rounds=rounds, sees=sights)
models_of_any_kind = st.builds(ThreatModel, controls=controls, knows=knowledge, rounds=rounds, sees=sights)


def lack_of(needs: Needs, model: ThreatModel) -> int:
    """Return how many things an attack lacks, counted one by one."""
    blind = needs.sees == "update" and model.sees == "aggregate"
    absent = [thing for thing in needs.controls if thing not in model.controls]
    unknown = [thing for thing in needs.knows if thing not in model.knows]
    return len(absent) + len(unknown) + (needs.rounds > model.rounds) + blind


def test_every_field_of_a_view_is_public_or_granted_by_some_knowledge() -> None:
    named = {field.name for field in dataclasses.fields(ServerView)}

    assert named == {"info", "stream", *FIELDS}
    assert set(FIELDS.values()) == set(KNOWLEDGE)


@settings(deadline=None)
@given(knows=knowledge)
def test_attack_is_handed_what_it_declared_and_nothing_else(knows: frozenset[Knowledge]) -> None:
    granted = grant(VIEW, Needs(knows=knows), ThreatModel())

    assert granted.info is VIEW.info
    assert granted.stream is VIEW.stream
    for name, source in FIELDS.items():
        assert getattr(granted, name) is (getattr(VIEW, name) if source in knows else None)


@settings(deadline=None)
@given(needs=needs_of_any_kind, model=models_of_any_kind)
def test_attack_runs_exactly_where_all_that_it_needs_is_granted(needs: Needs, model: ThreatModel) -> None:
    lacks = model.missing(needs)

    assert len(lacks) == lack_of(needs, model)
    if lacks:
        with pytest.raises(DataError, match="Expected a server with"):
            grant(VIEW, needs, model)
    else:
        assert grant(VIEW, needs, model).info is VIEW.info


@settings(deadline=None)
@given(needs=needs_of_any_kind, model=models_of_any_kind)
def test_what_a_threat_model_grants_beyond_the_needs_is_not_handed_over(needs: Needs, model: ThreatModel) -> None:
    allowed = dataclasses.replace(
        model, controls=model.controls | needs.controls, knows=model.knows | needs.knows, rounds=4, sees="update"
    )

    granted = grant(VIEW, needs, allowed)

    known = {name for name in FIELDS if getattr(granted, name) is not None}
    assert known == {name for name, source in FIELDS.items() if source in needs.knows}


@pytest.mark.parametrize("control", sorted(CONTROLS))
def test_missing_control_is_named(control: Control) -> None:
    model = ThreatModel(controls=frozenset(CONTROLS) - {control})

    lacks = model.missing(Needs(controls=frozenset(CONTROLS)))

    assert lacks == (f"control of {control}",)


@pytest.mark.parametrize("known", sorted(KNOWLEDGE))
def test_missing_knowledge_is_named(known: Knowledge) -> None:
    model = ThreatModel(knows=frozenset(KNOWLEDGE) - {known})

    with pytest.raises(DataError, match=f"Expected a server with knowledge of {known}: the threat model"):
        grant(VIEW, Needs(knows=frozenset(KNOWLEDGE)), model)


def test_missing_rounds_are_counted() -> None:
    with pytest.raises(DataError, match="3 rounds instead of 2"):
        grant(VIEW, Needs(rounds=3), ThreatModel(rounds=2))


def test_attack_on_a_single_update_is_refused_where_only_sums_are_seen() -> None:
    with pytest.raises(DataError, match="sight of a single update"):
        grant(VIEW, Needs(sees="update"), ThreatModel(sees="aggregate"))


def test_attack_on_sums_runs_where_single_updates_are_seen() -> None:
    assert ThreatModel(sees="update").missing(Needs(sees="aggregate")) == ()


def test_everything_that_is_missing_is_said_at_once() -> None:
    needs = Needs(controls=frozenset({"parameters"}), knows=frozenset({"generator"}), rounds=2)

    lacks = ThreatModel(controls=frozenset(), knows=frozenset(), sees="aggregate").missing(needs)

    assert lacks == (
        "control of parameters",
        "knowledge of generator",
        "2 rounds instead of 1",
        "sight of a single update",
    )


@pytest.mark.parametrize(
    ("require", "message"),
    [
        (ServerView.require_auxiliary, "Expected auxiliary images"),
        (ServerView.require_hyperparameters, "Expected the hyperparameters"),
        (ServerView.require_generated, "Expected images of the hospital's generator"),
    ],
)
def test_view_refuses_what_was_not_granted(require, message: str) -> None:
    granted = grant(VIEW, Needs(), ThreatModel())

    with pytest.raises(DataError, match=message):
        require(granted)


@pytest.mark.parametrize("require", [ServerView.require_auxiliary, ServerView.require_generated])
def test_no_images_are_as_good_as_none_granted(require) -> None:
    none = np.empty((0, 1, 8, 8), dtype=np.float32)
    empty = dataclasses.replace(VIEW, auxiliary=none, generated=none)

    with pytest.raises(DataError, match="found none"):
        require(empty)


def test_view_hands_out_what_was_granted() -> None:
    granted = grant(VIEW, Needs(knows=frozenset(KNOWLEDGE)), ThreatModel())

    assert granted.require_auxiliary() is VIEW.auxiliary
    assert granted.require_hyperparameters() is VIEW.hyperparameters
    assert granted.require_generated() is VIEW.generated


def test_pictures_stay_out_of_a_views_text() -> None:
    assert "array" not in repr(VIEW)


@pytest.mark.parametrize(
    ("attack", "wanted"),
    [
        (RobbingTheFed(), ({"parameters", "architecture"}, {"auxiliary"}, 1)),
        (RobbingTheFed(carrier="mlp"), ({"parameters"}, {"auxiliary"}, 1)),
        (
            RobbingTheFed(carrier="mlp", ability="adam-linear", rounds=4),
            ({"parameters"}, {"auxiliary", "hyperparameters"}, 4),
        ),
        (
            RobbingTheFed(carrier="mlp", direction="learned"),
            ({"parameters"}, {"auxiliary", "generator"}, 1),
        ),
    ],
)
def test_robbing_the_fed_declares_what_its_variant_uses(
    attack: RobbingTheFed, wanted: tuple[set[str], set[str], int]
) -> None:
    needs = attack.needs

    assert (set(needs.controls), set(needs.knows), needs.rounds) == wanted
    assert needs.sees == "update"
