"""The drawing of the accuracy: where its lines run, and that it holds nothing that a browser could be harmed by."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from deploy.coordinator.curve import draw_accuracy
from federation.metrics import Scores
from server_app.summary import CurvePoint
from tests.deploy.coordinator.made_up import HOSTILE

SVG = "http://www.w3.org/2000/svg"


def point(version: int, central: float | None, **hospitals: float) -> CurvePoint:
    def scores(value: float) -> Scores:
        return Scores(accuracy=value, auroc=None, loss=None, examples=1)

    return CurvePoint(
        version=version,
        elapsed_s=0,
        central=None if central is None else scores(central),
        hospitals={name: scores(value) for name, value in hospitals.items()},
    )


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.replace("<svg ", f'<svg xmlns="{SVG}" ', 1))


def corners(svg: str) -> list[list[tuple[float, float]]]:
    """Return the corners of every line."""
    texts = [line.attrib["points"] for line in parse(svg).iter(f"{{{SVG}}}polyline")]
    return [[(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())] for text in texts]


def words(svg: str) -> list[str]:
    return [text.text or "" for text in parse(svg).iter(f"{{{SVG}}}text")]


def test_line_runs_from_version_to_version_at_the_height_of_its_accuracy() -> None:
    svg = draw_accuracy([point(0, 0.2), point(5, 0.4), point(10, 0.3)])

    ((first, middle, last),) = corners(svg)
    assert middle[0] - first[0] == pytest.approx(last[0] - middle[0], abs=0.2)
    assert middle[1] < last[1] < first[1]
    assert last[1] == pytest.approx((first[1] + middle[1]) / 2, abs=0.2)


def test_axis_is_marked_where_the_line_is() -> None:
    svg = draw_accuracy([point(0, 0.2), point(1, 0.4)])
    ((low, high),) = corners(svg)

    marks = {
        text.text: float(text.attrib["y"]) - 4
        for text in parse(svg).iter(f"{{{SVG}}}text")
        if text.attrib.get("text-anchor") == "end"
    }

    assert marks == pytest.approx({"0.2": low[1], "0.3": (low[1] + high[1]) / 2, "0.4": high[1]}, abs=0.2)


def test_worst_hospital_has_a_line_of_its_own_where_it_was_evaluated() -> None:
    svg = draw_accuracy([point(0, 0.5, a=0.3, b=0.4), point(1, 0.6), point(2, 0.7, a=0.4)], "a")

    central, worst = corners(svg)
    assert (len(central), len(worst)) == (3, 2)
    assert [end[0] for end in worst] == [central[0][0], central[2][0]]
    assert "worst hospital, a" in words(svg)


def test_newest_values_are_told_to_those_who_do_not_see() -> None:
    svg = draw_accuracy([point(0, 0.5, a=0.3), point(4, 0.625, a=0.25)], "a")

    label = parse(svg).attrib["aria-label"]
    assert "server's images 0.625 at version 4" in label
    assert "worst hospital, a 0.250 at version 4" in label


@pytest.mark.parametrize("curve", [[], [point(0, None)], [point(0, math.nan)], [point(0, None, a=0.5)]])
def test_nothing_to_draw_is_no_drawing(curve: list[CurvePoint]) -> None:
    assert draw_accuracy(curve, "b") == ""


@pytest.mark.parametrize("accuracy", [0.0, 0.5, 1.0])
def test_single_point_lies_within_the_drawing(accuracy: float) -> None:
    svg = draw_accuracy([point(3, accuracy)])

    ((place,),) = corners(svg)
    _, _, width, height = map(float, parse(svg).attrib["viewBox"].split())
    assert 0 < place[0] < width
    assert 0 < place[1] < height
    assert "NaN" not in svg


def test_marks_stay_few_however_long_the_run_is() -> None:
    svg = draw_accuracy([point(version, 0.5) for version in (0, 1_000_000_000)])

    assert len(words(svg)) < 25


def test_hostile_name_stays_a_name() -> None:
    svg = draw_accuracy([point(0, 0.5, **{HOSTILE: 0.2})], HOSTILE)

    assert f"worst hospital, {HOSTILE}" in words(svg)
    assert "<script" not in svg


def test_drawing_holds_no_style_and_loads_nothing() -> None:
    svg = draw_accuracy([point(0, 0.5, a=0.3), point(1, 0.6, a=0.4)], "a")

    assert not re.search(r"style=|<style|href|url\(|on\w+=", svg)
