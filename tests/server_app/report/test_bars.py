from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from server_app.report.bars import age_plot, participation_plot, share_plot, weight_for_size
from server_app.report.labels import MOST_LINES
from server_app.summary import Staleness
from tests.server_app.report.page import texts

Make = Callable[..., Any]
MANY = [f"h{index}" for index in range(MOST_LINES + 1)]


def named(svg: str | None, *names: str) -> list[str]:
    """Return those of `names` that stand in the drawing, from top to bottom."""
    return [text for text in texts(svg) if text in names]


def test_participation_has_a_bar_for_each_hospital_and_outcome(make_hospital: Make) -> None:
    svg = participation_plot(
        {"a": make_hospital(dispatched=10, updates=6, refused={"late-reply": 3}), "b": make_hospital()}
    )

    assert svg is not None
    assert len(re.findall(r'id="participation-part-\d-\d+"', svg)) == 3 * 2
    assert {"applied", "refused", "open at the end", "a", "b"} <= set(texts(svg))
    assert "silent" not in texts(svg)


def test_participation_leaves_out_outcomes_that_did_not_occur(make_hospital: Make) -> None:
    labels = texts(participation_plot({"a": make_hospital(dispatched=9, updates=7, refused={"late-reply": 2})}))

    assert {"applied", "refused"} <= set(labels)
    assert "open at the end" not in labels


def test_participation_marks_silent_hospitals(make_hospital: Make) -> None:
    few = {"a": make_hospital(updates=0, dispatched=0), "b": make_hospital()}
    many = {name: make_hospital(updates=0 if name == "h3" else 2) for name in MANY}

    assert texts(participation_plot(few)).count("silent") == 1
    assert "silent" in texts(participation_plot(many))


def test_participation_of_many_hospitals_names_none(make_hospital: Make) -> None:
    labels = texts(participation_plot({name: make_hospital() for name in MANY}))

    assert not set(MANY) & set(labels)
    assert any(label.startswith(f"{len(MANY)} hospitals") for label in labels)


def test_participation_without_hospitals_is_not_drawn() -> None:
    assert participation_plot({}) is None


def test_run_in_which_nothing_happened_is_drawn(make_hospital: Make) -> None:
    silent = make_hospital(updates=0, dispatched=0, examples=0)

    few, many = {"a": silent}, {name: make_hospital(updates=0, dispatched=0) for name in MANY}

    assert "silent" in texts(participation_plot(few))
    assert "silent" in texts(participation_plot(many))


@pytest.mark.parametrize(
    "name", ["$x^2$", "$\\frac{", "--><script>alert(1)</script>", "a&b", '"quoted"', "\u533b\u9662"]
)
def test_name_of_a_hospital_is_drawn_as_it_is(name: str, make_hospital: Make) -> None:
    svg = participation_plot({name: make_hospital()})

    shown = name if len(name) <= 22 else name[:21] + "\u2026"
    assert shown in texts(svg)
    assert svg is not None
    assert "<script" not in svg


def test_name_that_looks_like_an_attribute_is_not_rewritten(make_hospital: Make) -> None:
    name = 'id="x" #0072b2 url(#a)'

    assert name in texts(participation_plot({name: make_hospital()}))


def test_discarded_results_are_no_refusals(make_hospital: Make) -> None:
    hospitals = {"a": make_hospital(dispatched=9, updates=7, refused={"discarded": 2}, discarded=2)}

    labels = texts(participation_plot(hospitals))

    assert "discarded" in labels
    assert not {"refused", "open at the end"} & set(labels)


def test_refused_scores_are_no_training_tasks(make_hospital: Make) -> None:
    hospitals = {"a": make_hospital(dispatched=9, updates=7, refused={"evaluation:node-lost": 2})}

    labels = texts(participation_plot(hospitals))

    assert "open at the end" in labels
    assert "refused" not in labels


def test_weight_for_size_is_known_where_both_shares_are(make_hospital: Make) -> None:
    hospitals = {
        "a": make_hospital(weight_share=0.1, size_share=0.4),
        "silent": make_hospital(weight_share=0.0, size_share=0.5),
        "absent": make_hospital(weight_share=0.0, size_share=None),
        "unweighed": make_hospital(weight_share=None, size_share=0.1),
    }

    assert weight_for_size(hospitals) == {"a": pytest.approx(0.25), "silent": 0.0}


def test_shares_show_the_least_weight_for_its_size_first(make_hospital: Make) -> None:
    hospitals = {
        "heard": make_hospital(weight_share=0.5, size_share=0.2),
        "drowned": make_hospital(weight_share=0.1, size_share=0.5),
        "fair": make_hospital(weight_share=0.3, size_share=0.3),
        "absent": make_hospital(weight_share=0.0, size_share=None),
    }

    svg = share_plot(hospitals)

    assert named(svg, *hospitals) == ["drowned", "fair", "heard"]
    assert {"updates", "weight", "by size alone", "share"} <= set(texts(svg))
    assert svg is not None
    assert len(re.findall(r'id="shares-part-\d-\d+"', svg)) == 2 * 3
    assert svg.count('id="shares-marks"') == 1


def test_ages_show_the_oldest_first(make_hospital: Make) -> None:
    hospitals = {
        "fresh": make_hospital(staleness=Staleness(mean=0.0, max=0)),
        "old": make_hospital(staleness=Staleness(mean=4.0, max=9)),
        "silent": make_hospital(staleness=None),
    }

    svg = age_plot(hospitals)

    assert named(svg, *hospitals) == ["old", "fresh"]
    assert {"mean", "oldest", "versions since dispatch"} <= set(texts(svg))


@pytest.mark.parametrize("plot", [share_plot, age_plot])
def test_many_hospitals_are_ranks_without_names(plot: Make, make_hospital: Make) -> None:
    part = make_hospital(weight_share=0.1, size_share=0.1, staleness=Staleness(mean=1.0, max=2))

    labels = texts(plot(dict.fromkeys(MANY, part)))

    assert not set(MANY) & set(labels)
    assert any(label.startswith(f"{len(MANY)} hospitals") for label in labels)


@pytest.mark.parametrize("plot", [share_plot, age_plot])
def test_nothing_is_drawn_where_no_update_was_applied(plot: Make, make_hospital: Make) -> None:
    assert plot({}) is None
    assert plot({"a": make_hospital(updates=0)}) is None
