from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_app.report import render_report, write_report
from server_app.report.labels import MOST_LINES
from server_app.summary import RunStatus, Summary
from tests.server_app.report.page import Page

Make = Callable[..., Any]

HOSTILE = '<script>alert(1)</script><img src="http://evil.example/x" onerror=alert(1)>\'"&{{ 7*7 }}'
URL_ATTRIBUTES = {"src", "href", "xlink:href", "action", "data", "poster", "srcset", "background", "formaction"}


SYNCHRONOUS = ["ordinary", "empty", "failed", "one point", "many"]
ASYNCHRONOUS = ["asynchronous", "asynchronous many"]
MASKED = ["masked"]


@pytest.fixture(params=SYNCHRONOUS + ASYNCHRONOUS + MASKED)
def any_summary(request: pytest.FixtureRequest, make_summary: Make, make_asynchronous: Make) -> Summary:
    made: dict[str, Callable[[], Any]] = {
        "ordinary": lambda: make_summary(["a", "b", "c"], 4),
        "empty": lambda: make_summary(
            [], 0, final=None, staleness=None, virtual_s=None, guarantees=[], configuration={}
        ),
        "failed": lambda: make_summary(["a"], 0, status=RunStatus.FAILED, reason="All nodes were lost.", final=None),
        "one point": lambda: make_summary(["a", "b"], 1),
        "many": lambda: make_summary([f"h{index}" for index in range(100)], 4, silent_hospitals=["h3"]),
        "asynchronous": lambda: make_asynchronous(["a", "b", "c"], 4),
        "masked": lambda: make_summary(["a", "b", "c"], 4, configuration={"masking.mode": "joint"}),
        "asynchronous many": lambda: make_asynchronous([f"h{index}" for index in range(100)], 4),
    }
    summary: Summary = made[request.param]()
    return summary


@pytest.fixture
def any_report(any_summary: Summary) -> str:
    """Return the report of `any_summary`, drawn once for all tests."""
    return _render_once(any_summary.model_dump_json())


@functools.cache
def _render_once(summary: str) -> str:
    return render_report(Summary.model_validate_json(summary))


def test_report_loads_nothing_and_runs_nothing(any_report: str) -> None:
    page = Page(any_report)

    assert not {tag for tag, _ in page.elements} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
    }
    assert not [value for key, value in page.attributes() if key in URL_ATTRIBUTES and not value.startswith("#")]
    assert not [key for key, _ in page.attributes() if key.startswith("on")]


def test_report_names_no_address_and_imports_no_style(any_report: str) -> None:
    html = any_report

    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert not re.findall(r"url\((?!#)", html)


def test_elements_are_nested_properly_and_ids_are_unique(any_report: str) -> None:
    page = Page(any_report)
    ids = [value for key, value in page.attributes() if key == "id"]

    assert page.open == []
    assert len(ids) == len(set(ids))


def test_content_security_policy_allows_inline_style_and_nothing_else(make_summary: Make) -> None:
    page = Page(render_report(make_summary(["a"])))
    policies = [a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a]

    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ]


def test_page_fits_a_phone(make_summary: Make) -> None:
    html = render_report(make_summary(["a"]))
    viewport = [a["content"] for tag, a in Page(html).elements if a.get("name") == "viewport"]

    assert viewport == ["width=device-width, initial-scale=1"]
    assert "@media (max-width: 700px)" in html
    assert re.search(r'<div class="card scroll"[^>]*>\s*<table class="hospitals">', html)


@pytest.mark.parametrize("any_summary", SYNCHRONOUS, indirect=True)
def test_sections_stand_in_the_order_of_their_weight(any_report: str) -> None:
    headings = re.findall(r"<h2>(.*?)</h2>", any_report)

    assert headings == [
        "Key figures",
        "Curves",
        "Hospitals",
        "Participation and refusals",
        "Communication and time",
        "What this run guarantees and what it does not",
        "Resolved configuration",
    ]


@pytest.mark.parametrize("any_summary", ASYNCHRONOUS, indirect=True)
def test_asynchrony_stands_between_hospitals_and_refusals(any_report: str) -> None:
    headings = re.findall(r"<h2>(.*?)</h2>", any_report)

    assert headings[2:5] == ["Hospitals", "Asynchrony", "Participation and refusals"]


def test_every_text_of_the_data_is_escaped_and_shown_as_it_is(make_summary: Make, make_hospital: Make) -> None:
    summary = make_summary(
        [HOSTILE],
        2,
        run=HOSTILE,
        engine=HOSTILE,
        status=RunStatus.FAILED,
        reason=HOSTILE,
        per_hospital={HOSTILE: make_hospital(refused={HOSTILE: 2}, weight_share=0.1, size_share=1.0)},
        silent_hospitals=[HOSTILE],
        refused={HOSTILE: 2},
        guarantees=[HOSTILE],
        configuration={HOSTILE: HOSTILE, "aggregation.rule": HOSTILE},
    )

    page = Page(render_report(summary))

    assert not {tag for tag, _ in page.elements} & {"script", "img"}
    assert "onerror" not in dict(page.attributes())
    # run, engine, reason, silent, worst card, table: name and reason, refusals, guarantee, configuration: key and two
    # values, asynchrony: rule, least heard, table
    assert page.text.count(" ".join(HOSTILE.split())) == 15


def test_report_has_four_plots(make_summary: Make) -> None:
    assert render_report(make_summary(["a", "b"], 4)).count("<svg") == 4


def test_report_of_an_asynchronous_run_has_two_more(make_asynchronous: Make) -> None:
    assert render_report(make_asynchronous(["a", "b"], 4)).count("<svg") == 6


def test_long_table_scrolls_in_its_own_frame(make_summary: Make) -> None:
    names = [f"h{index}" for index in range(MOST_LINES + 1)]

    assert 'class="card scroll long"' in render_report(make_summary(names))
    assert 'class="card scroll long"' not in render_report(make_summary(names[:-1]))


def test_equal_summaries_give_equal_bytes(any_summary: Summary, any_report: str) -> None:
    assert render_report(any_summary).encode() == any_report.encode()


def test_order_of_the_data_does_not_matter(make_summary: Make) -> None:
    summary = make_summary(["a", "b", "c"], 4, refused={"x": 1, "y": 1}, silent_hospitals=["b", "c"])
    backwards = summary.model_copy(
        update={
            "per_hospital": dict(reversed(summary.per_hospital.items())),
            "refused": {"y": 1, "x": 1},
            "silent_hospitals": ["c", "b"],
            "configuration": dict(reversed(summary.configuration.items())),
        }
    )

    assert render_report(backwards) == render_report(summary)


def test_report_is_written_whole(make_summary: Make, tmp_path: Path) -> None:
    summary = make_summary(["Universit\u00e4tsklinikum"])

    write_report(summary, tmp_path / "report.html")

    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render_report(summary)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_report_that_cannot_be_written_leaves_the_old_one(
    make_summary: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match="No space left"):
        write_report(make_summary(["a"]), path)

    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_no_plotting_state_is_shared_with_the_process() -> None:
    folder = Path(__file__).parents[3] / "server_app" / "report"
    modules = {
        name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }

    assert "matplotlib.figure" in modules
    assert not any("pyplot" in name or "backend" in name for name in modules)
