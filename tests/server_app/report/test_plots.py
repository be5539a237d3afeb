from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import pytest

from server_app.report.plots import MOST_LINES, hospital_plot, loss_plot, participation_plot, quality_plot
from server_app.summary import CurvePoint

Make = Callable[..., Any]
MANY = [f"h{index}" for index in range(MOST_LINES + 1)]


def series(svg: str | None) -> int:
    assert svg is not None
    return len(re.findall(r'id="[a-z]+-series-\d+"', svg))


def texts(svg: str | None) -> list[str]:
    assert svg is not None
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def point(version: int, central: Any = None, hospitals: dict[str, Any] | None = None) -> CurvePoint:
    return CurvePoint(version=version, elapsed_s=0.0, central=central, hospitals=hospitals or {})


def test_quality_has_a_series_for_accuracy_and_one_for_auroc(make_summary: Make) -> None:
    svg = quality_plot(make_summary(["a", "b"], 4).curve)

    assert series(svg) == 2
    assert {"accuracy", "AUROC", "model version"} <= set(texts(svg))


def test_quality_leaves_out_auroc_where_no_point_has_one(make_scores: Make) -> None:
    svg = quality_plot([point(0, make_scores(0.5, auroc=None)), point(1, make_scores(0.6, auroc=None))])

    assert series(svg) == 1
    assert "AUROC" not in texts(svg)


def test_loss_has_a_series_of_the_server_and_one_of_the_mean_hospital(make_summary: Make) -> None:
    assert series(loss_plot(make_summary(["a", "b"], 4).curve)) == 2


def test_loss_that_was_not_told_is_left_out(make_scores: Make) -> None:
    svg = loss_plot([point(0, make_scores(0.5), {"a": make_scores(0.5, loss=None)})])

    assert series(svg) == 1
    assert "mean of hospitals" not in texts(svg)


def test_each_hospital_has_a_line_beside_the_mean_and_the_worst_is_named(make_summary: Make) -> None:
    svg = hospital_plot(make_summary(["a", "b", "c"], 4).curve, "b")

    assert series(svg) == 4
    assert "worst: b" in texts(svg)


def test_worst_hospital_without_evaluation_is_not_drawn(make_summary: Make) -> None:
    svg = hospital_plot(make_summary(["a", "b"], 4).curve, "absent")

    assert series(svg) == 3
    assert not any(text.startswith("worst") for text in texts(svg))


@pytest.mark.parametrize("points", [1, 5])
def test_many_hospitals_are_a_band_the_mean_and_the_worst(points: int, make_summary: Make) -> None:
    svg = hospital_plot(make_summary(MANY, points).curve, MANY[0])

    assert series(svg) == 2
    assert svg is not None
    assert svg.count('id="hospitals-band"') == 1
    assert "middle 80 %" in texts(svg)


def test_as_many_hospitals_as_fit_still_have_lines(make_summary: Make) -> None:
    assert series(hospital_plot(make_summary(MANY[:-1], 4).curve, MANY[0])) == MOST_LINES + 1


@pytest.mark.parametrize("draw", [quality_plot, loss_plot, lambda curve: hospital_plot(curve, "a")])
def test_nothing_is_drawn_without_evaluations(draw: Make) -> None:
    assert draw([]) is None
    assert draw([point(0), point(1)]) is None


def test_values_that_are_not_finite_are_left_out_and_alone_draw_nothing(make_scores: Make) -> None:
    broken = make_scores(math.nan, auroc=math.nan, loss=math.inf)

    assert quality_plot([point(0, broken)]) is None
    assert loss_plot([point(0, broken, {"a": broken})]) is None
    assert hospital_plot([point(0, None, {"a": broken})], "a") is None
    assert series(quality_plot([point(0, broken), point(1, make_scores(0.5))])) == 2


@pytest.mark.parametrize("version", [0, 7, 100_000])
def test_single_evaluation_has_its_version_as_only_tick(version: int, make_scores: Make) -> None:
    labels = texts(loss_plot([point(version, make_scores(0.5))]))

    assert [label for label in labels if label.isdigit()] == [str(version)]


def test_participation_has_a_bar_for_each_hospital_and_outcome(make_hospital: Make) -> None:
    svg = participation_plot(
        {"a": make_hospital(dispatched=10, updates=6, refused={"late-reply": 3}), "b": make_hospital()}
    )

    assert svg is not None
    assert len(re.findall(r'id="participation-part-\d-\d+"', svg)) == 3 * 2
    assert {"applied", "refused", "no result", "a", "b"} <= set(texts(svg))
    assert "silent" not in texts(svg)


def test_participation_leaves_out_outcomes_that_did_not_occur(make_hospital: Make) -> None:
    labels = texts(participation_plot({"a": make_hospital(dispatched=9, updates=7, refused={"late-reply": 2})}))

    assert {"applied", "refused"} <= set(labels)
    assert "no result" not in labels


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


def test_drawing_has_no_style_no_comment_no_metadata_and_no_size_of_its_own(make_summary: Make) -> None:
    svg = quality_plot(make_summary(["a"], 4).curve)

    assert svg is not None
    assert not re.search(r"<style|<!--|<metadata|xmlns|http", svg)
    assert set(ET.fromstring(svg).attrib) == {"viewBox", "aria-hidden"}


def test_references_inside_a_drawing_lead_to_ids_inside_it(make_summary: Make) -> None:
    svg = hospital_plot(make_summary(["a", "b"], 4).curve, "a")

    assert svg is not None
    ids = set(re.findall(r'\bid="([^"]+)"', svg))
    references = set(re.findall(r'href="#([^"]+)"', svg)) | set(re.findall(r"url\(#([^)]+)\)", svg))
    assert references
    assert references <= ids
    assert all(name.startswith("hospitals-") for name in ids)


def test_colours_are_variables_of_the_page(make_summary: Make) -> None:
    svg = quality_plot(make_summary(["a"], 4).curve)

    assert svg is not None
    assert "var(--plot-blue, #0072b2)" in svg
    assert not re.findall(r"(?<!, )#[0-9a-f]{6}", re.sub(r'(href="|url\()#[^")]+', "", svg))


def test_settings_of_the_caller_are_neither_used_nor_changed(make_summary: Make) -> None:
    curve = make_summary(["a"], 4).curve
    expected = quality_plot(curve)

    with mpl.rc_context({"font.size": 33.0, "lines.linewidth": 9.0, "svg.fonttype": "path", "xtick.direction": "in"}):
        before = dict(mpl.rcParams)
        assert quality_plot(curve) == expected
        assert dict(mpl.rcParams) == before
