"""The table of privacy ledgers: what was spent is never shown smaller, what is left never larger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from server_app.report import render_report
from server_app.report.ledgers import ledger_rows
from server_app.summary import Summary
from tests.server_app.test_guarantees import ledger, told

Make = Callable[..., Any]


@pytest.fixture
def make_private(make_summary: Make, make_hospital: Make) -> Callable[..., Summary]:
    """Return the function that makes a summary of hospitals with the given ledgers."""

    def make(**ledgers: Any) -> Summary:
        per_hospital = {name: make_hospital(auroc=None, ledger=item) for name, item in ledgers.items()}
        summary: Summary = make_summary([], per_hospital=per_hospital)
        return summary

    return make


def test_every_hospital_that_declared_has_a_row_in_natural_order(make_private: Make) -> None:
    rows = ledger_rows(make_private(h10=ledger(), h2=ledger(), h3=None))

    assert [row.hospital for row in rows] == ["h2", "h10"]


@pytest.mark.parametrize(("spent", "shown"), [(3.2, "3.200"), (3.20001, "3.201"), (0.0001, "0.001"), (7.9999, "8.000")])
def test_epsilon_is_rounded_up(make_private: Make, spent: float, shown: str) -> None:
    (row,) = ledger_rows(make_private(a=ledger(spent=spent, linear=spent, rdp=spent, pld=spent)))

    assert [value.text for value in (row.spent, row.linear, row.rdp, row.pld)] == [shown] * 4


@pytest.mark.parametrize(("spent", "shown"), [(3.0, "5.000"), (7.99999, "0.000"), (0.00001, "7.999"), (9.0, "0.000")])
def test_what_is_left_is_rounded_down(make_private: Make, spent: float, shown: str) -> None:
    (row,) = ledger_rows(make_private(a=ledger(spent=spent, cap=8.0)))

    assert row.left.text == shown
    assert row.share == min(1.0, spent / 8.0)


@pytest.mark.parametrize(
    ("unit", "relation", "shown"),
    [
        ("record", "add-remove", "one image, add-remove"),
        ("patient", "add-remove", "one patient, add-remove"),
        ("update", "replace-one", "one whole update, replace-one"),
    ],
)
def test_row_says_who_is_protected(make_private: Make, unit: str, relation: str, shown: str) -> None:
    (row,) = ledger_rows(make_private(a=ledger(unit=unit, relation=relation)))

    assert row.protects == shown


@pytest.mark.parametrize(
    ("changes", "status", "alarming"),
    [
        ({}, "open", False),
        ({"paused": True}, "paused: budget spent", False),
        ({"contradictions": 3}, "open, 3 declarations refused", True),
        ({"paused": True, "contradictions": 1}, "paused: budget spent, 1 declarations refused", True),
        ({"uncovered": 2}, "no epsilon holds: 2 releases are not covered", True),
    ],
)
def test_status_says_what_must_be_known(
    make_private: Make, changes: dict[str, Any], status: str, alarming: bool
) -> None:
    (row,) = ledger_rows(make_private(a=ledger(**changes)))

    assert (row.status, row.alarming) == (status, alarming)


def test_report_shows_every_ledger_with_its_numbers(make_private: Make) -> None:
    html = render_report(make_private(north=ledger(spent=1.2345, cap=4.0, linear=6.5, rdp=2.5, pld=1.5)))

    section = html[html.index("<h2>Privacy ledgers</h2>") :]
    section = section[: section.index("</table>")]
    for text in ("north", "dp-sgd", "one image", "1.235", "4.000", "2.765", "6.500", "2.500", "1.500", "open"):
        assert text in section
    assert "accuracy was noised before it left" in html


def test_epsilon_of_scores_is_shown_for_each_split_rounded_up(make_summary: Make, make_hospital: Make) -> None:
    scores = {"test": told(0.5), "validation": told(1.23401, 1e-6)}
    summary = make_summary([], per_hospital={"a": make_hospital(auroc=None, ledger=ledger(), scores=scores)})

    (row,) = ledger_rows(summary)
    html = render_report(summary)

    assert [(value.text, value.detail) for value in row.scores] == [("1.235", "validation"), ("0.500", "test")]
    assert "1e-06" in row.scores[0].title
    section = html[html.index("<h2>Privacy ledgers</h2>") :]
    for text in ("Scores: epsilon", "1.235", "validation", "0.500"):
        assert text in section


def test_scores_that_epsilon_does_not_cover_show_none(make_summary: Make, make_hospital: Make) -> None:
    scores = {"test": told(0.5, uncovered=2)}

    (row,) = ledger_rows(make_summary([], per_hospital={"a": make_hospital(ledger=ledger(), scores=scores)}))

    assert [value.text for value in row.scores] == ["none holds"]


def test_hospital_that_told_scores_and_no_update_has_a_row(make_summary: Make, make_hospital: Make) -> None:
    hospitals = {"a": make_hospital(auroc=None, scores={"test": told(0.5)}), "b": make_hospital()}
    summary = make_summary([], per_hospital=hospitals)

    (row,) = ledger_rows(summary)

    assert (row.hospital, row.status, row.spent.missing) == ("a", "scores only", True)
    assert "0.500" in render_report(summary)


def test_scores_that_stayed_at_home_are_missing(make_private: Make) -> None:
    (row,) = ledger_rows(make_private(a=ledger()))

    assert [value.missing for value in row.scores] == [True]


def test_report_of_a_run_without_a_mechanism_shows_no_ledger(make_private: Make) -> None:
    html = render_report(make_private(north=None))

    assert "Privacy ledgers" not in html
    assert "noised before it left" not in html
