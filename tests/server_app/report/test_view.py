from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from server_app.report import render_report
from server_app.summary import RunStatus, Staleness
from tests.server_app.report.page import Page, rows, section

Make = Callable[..., Any]


@pytest.mark.parametrize("status", list(RunStatus))
def test_banner_says_how_the_run_ended_and_why(status: RunStatus, make_summary: Make) -> None:
    html = render_report(make_summary(["a"], status=status, reason="Two of three nodes were lost."))

    assert html.count(f'<div class="banner {status.value}"') == 1
    assert f"{status.value} Two of three nodes were lost." in Page(html).text


def test_failed_run_without_reason_says_that_none_was_recorded(make_summary: Make) -> None:
    assert "failed No reason was recorded." in Page(render_report(make_summary(["a"], status=RunStatus.FAILED))).text


def test_key_figures_are_those_of_the_summary(make_summary: Make) -> None:
    text = section(render_report(make_summary(["a", "b"])), "Key figures")

    for expected in (
        "Final accuracy 0.812 on 100 test images",
        "Final AUROC 0.938",
        "Accuracy at the worst hospital 0.600 a 0.075 below the mean of hospitals",
        "Model versions 7",
        "Updates applied 18",
        "Silent hospitals 0 of 2",
        "Highest epsilon spent no guarantee",
        "Received from hospitals 3.00 MiB",
        "Sent to hospitals 5.00 GiB",
        "Wall time 42.0 s",
        "Virtual time 1 h 01 min",
    ):
        assert expected in text


def test_missing_values_are_dashes_that_say_why(make_summary: Make, make_hospital: Make) -> None:
    hospitals = {"a": make_hospital(accuracy=None, auroc=None)}
    html = render_report(
        make_summary(["a"], final=None, worst_hospital=None, per_hospital=hospitals, virtual_s=None, staleness=None)
    )

    dashes = re.findall(r'<span class="missing" title="([^"]+)">\u2013</span>', html)
    assert len(dashes) == html.count(">\u2013<")
    assert set(dashes) == {
        "no evaluation on test images of the server",
        "no hospital was evaluated",
        "the final model was not evaluated at this hospital",
        "the run did not use a virtual clock",
        "no update was applied",
    }


def test_missing_auroc_says_that_no_class_allows_one(
    make_summary: Make, make_hospital: Make, make_scores: Make
) -> None:
    hospitals = {"a": make_hospital(auroc=None)}

    html = render_report(make_summary(["a"], final=make_scores(0.5, auroc=None), per_hospital=hospitals))

    assert html.count('title="no class has both positive and negative images"') == 2
    assert "macro average" not in html


def test_worst_hospital_is_marked_and_stands_first(make_summary: Make, make_hospital: Make) -> None:
    hospitals = {
        "good": make_hospital(accuracy=0.9),
        "unknown": make_hospital(accuracy=None),
        "bad-10": make_hospital(accuracy=0.4),
        "bad-9": make_hospital(accuracy=0.4),
        "fair": make_hospital(accuracy=0.6),
    }

    table = rows(render_report(make_summary(list(hospitals), per_hospital=hospitals, worst_hospital="bad-10")))

    assert [re.findall(r"<bdi>(.*?)</bdi>", row) for row in table] == [
        ["bad-10"], ["bad-9"], ["fair"], ["good"], ["unknown"],
    ]  # fmt: skip
    assert [">worst<" in row for row in table] == [True, False, False, False, False]


def test_silent_hospitals_are_named_above_and_marked_in_the_table(make_summary: Make) -> None:
    html = render_report(make_summary(["h1", "h2", "h10"], silent_hospitals=["h10", "h2"]))

    assert "No update of these went into the model: h2 , h10" in Page(html).text
    assert [re.findall(r"<bdi>(.*?)</bdi>", row) for row in rows(html) if ">silent<" in row] == [["h2"], ["h10"]]
    assert "Silent hospitals 2 of 3" in section(html, "Key figures")


def test_run_without_silent_hospitals_has_no_such_notice(make_summary: Make) -> None:
    assert 'class="banner silence"' not in render_report(make_summary(["a"]))


def test_row_holds_what_the_hospital_contributed_and_got(make_summary: Make, make_hospital: Make) -> None:
    refused = {"late-reply": 1, "wrong-shape": 2}
    values = {"examples": 1234, "dispatched": 12, "updates": 9, "refused": refused, "accuracy": 0.75, "auroc": 0.85}
    hospitals = {"a": make_hospital(**values, epsilon_spent=2.5, delta=1e-5, benefit_per_epsilon=0.125)}

    (row,) = rows(render_report(make_summary(["a"], per_hospital=hospitals)))

    assert Page(row).text == (
        "a worst 1\u202f234 12 9 3 wrong-shape 2 late-reply 1 0.750 0.850 2.500 at \u03b4 = 1e-05 0.125"
    ).replace("\u202f", " ")


def test_hospital_without_mechanism_has_no_guarantee(make_summary: Make) -> None:
    html = render_report(make_summary(["a", "b"]))

    assert all("no guarantee" in row for row in rows(html))
    assert "Accuracy gained per epsilon" not in html


def test_highest_epsilon_tells_of_hospitals_that_have_none(make_summary: Make, make_hospital: Make) -> None:
    hospitals = {
        "a": make_hospital(epsilon_spent=1.0, delta=1e-6),
        "b": make_hospital(epsilon_spent=3.0, delta=1e-5),
        "c": make_hospital(),
    }

    text = section(render_report(make_summary(list(hospitals), per_hospital=hospitals)), "Key figures")

    assert "Highest epsilon spent 3.000 at \u03b4 = 1e-05 no guarantee at 1 of 3 hospitals" in text


def test_refusals_tell_apart_those_of_unknown_senders(make_summary: Make, make_hospital: Make) -> None:
    hospitals = {name: make_hospital(refused={"late-reply": 2}) for name in ("a", "b")}
    refused = {"unknown-node": 3, "late-reply": 5, "non-finite": 0}

    text = section(
        render_report(make_summary(["a", "b"], per_hospital=hospitals, refused=refused)), "Participation and refusals"
    )

    assert "late-reply 5 1 unknown-node 3 3" in text
    assert "non-finite" not in text


def test_run_without_refusals_says_so(make_summary: Make) -> None:
    assert "No update was refused." in Page(render_report(make_summary(["a"]))).text


def test_costs_are_related_to_the_applied_updates(make_summary: Make) -> None:
    traffic = {"bytes_up": 3 * 1024**2, "bytes_down": 5 * 1024**2}
    summary = make_summary(["a"], updates_applied=4, staleness=Staleness(mean=1.25, max=6), resumed=2, **traffic)

    text = section(render_report(summary), "Communication and time")

    assert "Traffic per applied update 2.00 MiB" in text
    assert "Staleness of applied updates 1.25 versions on average, at most 6" in text
    assert "Restarts from a checkpoint 2" in text


def test_costs_that_cannot_be_told_say_why(make_summary: Make) -> None:
    summary = make_summary(["a"], updates_applied=0, staleness=None, virtual_s=None)

    text = section(render_report(summary), "Communication and time")

    assert "Traffic per applied update \u2013 no update was applied" in text
    assert "Staleness of applied updates \u2013 no update was applied" in text
    assert "Virtual time \u2013 the run did not use a virtual clock" in text


def test_guarantees_are_listed_in_their_order(make_summary: Make) -> None:
    text = section(render_report(make_summary(["a"])), "What this run guarantees and what it does not")

    assert text.endswith("Images never leave a hospital. Masking is not differential privacy.")


def test_run_that_states_no_guarantee_promises_none(make_summary: Make) -> None:
    assert "The run states no guarantee; assume none." in Page(render_report(make_summary(["a"], guarantees=[]))).text


def test_configuration_is_folded_and_sorted(make_summary: Make) -> None:
    html = render_report(make_summary(["a"], configuration={"run.seed": 7, "record.updates": False, "data.name": "x"}))

    folded = re.search(r"<details>(.*?)</details>", html, re.DOTALL)
    assert folded is not None
    assert re.findall(r"<code>(.*?)</code>", folded.group(1)) == [
        "data.name", "x", "record.updates", "false", "run.seed", "7",
    ]  # fmt: skip


def test_each_part_without_data_says_so_instead_of_an_empty_plot(make_summary: Make) -> None:
    html = render_report(make_summary([], 0))

    assert "<svg" not in html
    assert html.count('class="empty"') + html.count('class="card empty"') == 6


def test_numbers_that_are_not_finite_do_not_stop_the_report(
    make_summary: Make, make_hospital: Make, make_scores: Make
) -> None:
    hospitals = {"a": make_hospital(accuracy=math.nan, auroc=math.nan, epsilon_spent=math.inf), "b": make_hospital()}
    broken = make_scores(math.nan, auroc=math.nan, loss=math.inf)

    html = render_report(make_summary(["a", "b"], per_hospital=hospitals, final=broken, wall_s=math.inf))

    assert ">nan<" not in html
    assert ">inf" not in html
    assert "no guarantee" in rows(html)[0]
