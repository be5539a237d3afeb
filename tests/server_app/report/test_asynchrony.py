"""What a report says of asynchrony: who is heard, who is drowned, and whether by age, noise or rarity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from server_app.report import render_report
from server_app.report.asynchrony import DROWNED, describe_asynchrony
from server_app.report.labels import MOST_LINES
from server_app.summary import Staleness
from tests.server_app.report.page import Page, rows, section

Make = Callable[..., Any]


def table(html: str) -> list[str]:
    return [Page(row).text for row in rows(html, "influence")]


@pytest.mark.parametrize("configuration", [{}, {"aggregation.rule": "fedavg"}])
def test_run_in_rounds_has_no_such_section(make_summary: Make, configuration: dict[str, str]) -> None:
    assert describe_asynchrony(make_summary(["a"], configuration=configuration)) is None


@pytest.mark.parametrize("rule", ["fedasync", "buffered", "semi-synchronous"])
def test_run_without_rounds_has_the_section_even_when_nothing_was_old(make_summary: Make, rule: str) -> None:
    assert describe_asynchrony(make_summary(["a"], configuration={"aggregation.rule": rule})) is not None


def test_old_update_brings_the_section_whatever_the_rule(make_summary: Make) -> None:
    assert describe_asynchrony(make_summary(["a"], staleness=Staleness(mean=0.1, max=1))) is not None


def test_key_figures_say_how_old_and_what_was_lost(make_asynchronous: Make) -> None:
    text = section(render_report(make_asynchronous(["slow", "b", "c"])), "Asynchrony")

    for expected in (
        "Staleness of applied updates 1.50 versions on average, at most 6",
        "Least weight for its size 0.06 slow",
        "Refused as too old or too late 1 had left the hospital",
        "Discarded unreleased 2 deleted at the hospital",
    ):
        assert expected in text


def test_late_replies_and_stale_ones_are_counted_together(make_asynchronous: Make) -> None:
    refused = {"late-reply": 3, "too-stale": 4, "non-finite": 5, "discarded": 6}

    text = section(render_report(make_asynchronous(["a", "b"], refused=refused)), "Asynchrony")

    assert "Refused as too old or too late 7" in text


def test_row_tells_what_a_hospital_weighs_and_why(make_asynchronous: Make) -> None:
    slow, fast, _ = table(render_report(make_asynchronous(["slow", "b", "c"])))

    assert slow == (
        "slow drowned seldom heard 0.053 0.020 0.333 0.06 6.00 at most 6 400 0.375 0.900 3 discarded 2 too-stale 1"
    )
    assert fast == "b 0.474 0.490 0.333 1.47 1.25 at most 2 400 0.750 0.900 0"


def test_factors_are_named_in_the_order_in_which_they_are_logged(make_summary: Make, make_hospital: Make) -> None:
    hospitals = {"a": make_hospital(factors={"noise": 0.5}), "b": make_hospital(factors={"staleness": 0.5})}

    text = section(render_report(make_summary(["a", "b"], staleness=Staleness(mean=1, max=1), per_hospital=hospitals)),
                   "Asynchrony")  # fmt: skip

    assert "Factor: staleness Factor: noise Too late" in text


@pytest.mark.parametrize(
    ("factors", "updates", "cause"),
    [
        ({"staleness": 0.1, "noise": 0.9}, 9, "old"),
        ({"staleness": 0.9, "noise": 0.1}, 9, "noisy"),
        ({"shift": 0.1}, 9, "shifted data"),
        ({"anomaly": 0.1}, 9, "abnormal norms"),
        ({"direction": 0.1}, 9, "against the model"),
        ({"balance": 0.25}, 9, "often heard"),
        ({"staleness": 0.5, "noise": 0.5}, 1, "seldom heard"),
        ({"size": 0.001, "staleness": 0.9}, 9, "old"),
        ({}, 0, "never heard"),
    ],
)
def test_drowned_hospital_is_told_why(
    factors: dict[str, float], updates: int, cause: str, make_summary: Make, make_hospital: Make
) -> None:
    everything = {"size": 1.0, "staleness": 1.0, "noise": 1.0, "balance": 1.0}
    fair = make_hospital(updates=9, weight_share=0.45, size_share=1 / 3, factors=everything)
    drowned = make_hospital(updates=updates, weight_share=0.1, size_share=1 / 3, factors=factors)
    hospitals = {"x": drowned, "b": fair, "c": fair}

    found = describe_asynchrony(
        make_summary(["x", "b", "c"], per_hospital=hospitals, staleness=Staleness(mean=1, max=1))
    )

    assert found is not None
    assert {row.hospital: row.cause for row in found.rows} == {"x": cause, "b": "", "c": ""}


@pytest.mark.parametrize(("ratio", "drowned"), [(DROWNED - 0.01, True), (DROWNED, False)])
def test_hospital_with_half_of_its_weight_is_not_drowned(
    ratio: float, drowned: bool, make_summary: Make, make_hospital: Make
) -> None:
    hospitals = {
        "x": make_hospital(weight_share=ratio * 0.5, size_share=0.5, factors={"staleness": 0.5}),
        "b": make_hospital(weight_share=1 - ratio * 0.5, size_share=0.5, factors={"staleness": 1.0}),
    }

    html = render_report(make_summary(["x", "b"], per_hospital=hospitals, staleness=Staleness(mean=1, max=1)))

    assert ["drowned" in row for row in table(html)] == [drowned, False]


def test_hospitals_without_weight_or_size_stand_last_and_say_why(make_summary: Make, make_hospital: Make) -> None:
    silent = {"updates": 0, "staleness": None}
    hospitals = {
        "absent": make_hospital(weight_share=0.0, size_share=None, **silent),
        "fair": make_hospital(weight_share=1.0, size_share=0.5, factors={"staleness": 0.5}),
        "silent": make_hospital(weight_share=0.0, size_share=0.5, **silent),
    }
    run = make_summary(list(hospitals), per_hospital=hospitals, staleness=Staleness(mean=1, max=1))

    html = render_report(run)

    assert [row.split()[0] for row in table(html)] == ["silent", "fair", "absent"]
    assert 'title="never enrolled">\u2013<' in rows(html, "influence")[2]
    assert rows(html, "influence")[0].count('title="no update of it was applied">\u2013<') == 2


def test_run_that_applied_nothing_says_so(make_summary: Make, make_hospital: Make) -> None:
    hospitals = {"a": make_hospital(updates=0)}
    configuration = {"aggregation.rule": "fedasync"}

    html = render_report(
        make_summary(["a"], per_hospital=hospitals, staleness=None, updates_applied=0, configuration=configuration)
    )

    text = section(html, "Asynchrony")
    assert text.count("No update was applied.") == 2
    assert "Least weight for its size \u2013 no update has weight" in text


def test_table_of_many_hospitals_scrolls_in_its_own_frame(make_asynchronous: Make) -> None:
    html = render_report(make_asynchronous([f"h{index}" for index in range(MOST_LINES + 1)]))

    assert html.count('class="card scroll long"') == 2
