from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import pytest

from server_app.report.labels import MOST_LINES
from server_app.report.plots import hospital_plot, loss_plot, quality_plot
from server_app.summary import CurvePoint
from tests.server_app.report.page import texts

Make = Callable[..., Any]
MANY = [f"h{index}" for index in range(MOST_LINES + 1)]


def series(svg: str | None) -> int:
    assert svg is not None
    return len(re.findall(r'id="[a-z]+-series-\d+"', svg))


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
