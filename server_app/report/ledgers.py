"""The table of privacy ledgers: what each hospital has spent, by three accounts, and what is left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from server_app.report.formats import MISSING, Value, show_count
from server_app.report.order import natural_key
from server_app.summary import LedgerSummary, ScoresSummary, Summary

_UNITS = {"record": "image", "patient": "patient", "update": "whole update"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerRow:
    """One hospital's ledger as the server mirrors it."""

    hospital: str
    mechanism: str
    protects: str
    releases: Value
    spent: Value
    cap: Value
    left: Value
    share: float
    linear: Value
    rdp: Value
    pld: Value
    scores: list[Value]
    status: str
    alarming: bool


def ledger_rows(summary: Summary) -> list[LedgerRow]:
    """Return a row for every hospital that declared something, in natural order of their ids."""
    hospitals = sorted(summary.per_hospital.items(), key=lambda item: natural_key(item[0]))
    rows = [(hospital, part.ledger, _scores(part.scores)) for hospital, part in hospitals if part.ledger or part.scores]
    return [
        _ledger_row(hospital, ledger, scores) if ledger else _row_of_scores(hospital, scores)
        for hospital, ledger, scores in rows
    ]


def _ledger_row(hospital: str, ledger: LedgerSummary, scores: list[Value]) -> LedgerRow:
    return LedgerRow(
        hospital=hospital,
        mechanism=ledger.mechanism,
        protects=f"one {_UNITS.get(ledger.unit, ledger.unit)}, {ledger.relation}",
        releases=show_count(ledger.releases),
        spent=_epsilon(ledger.spent, f"by the {ledger.account} account, at delta {ledger.delta:g}"),
        cap=_epsilon(ledger.cap, ""),
        left=_left(ledger.left),
        share=min(1.0, ledger.spent / ledger.cap) if ledger.cap else 1.0,
        linear=_epsilon(ledger.linear, "sum over this run's releases"),
        rdp=_epsilon(ledger.rdp, "Renyi differential privacy, this run"),
        pld=_epsilon(ledger.pld, "privacy loss distributions, this run"),
        scores=scores,
        status=_status(ledger),
        alarming=bool(ledger.uncovered or ledger.contradictions),
    )


def _row_of_scores(hospital: str, scores: list[Value]) -> LedgerRow:
    """Return the row of a hospital that told scores and no update."""
    missing = Value(text=MISSING, title="it declared no update", missing=True)
    return LedgerRow(
        hospital=hospital,
        mechanism=MISSING,
        protects=MISSING,
        releases=missing,
        spent=missing,
        cap=missing,
        left=missing,
        share=0.0,
        linear=missing,
        rdp=missing,
        pld=missing,
        scores=scores,
        status="scores only",
        alarming=False,
    )


def _scores(scores: Mapping[str, ScoresSummary]) -> list[Value]:
    """Return the epsilon of each scored split, beside its name."""
    if not scores:
        return [Value(text=MISSING, title="scores stayed at the hospital", missing=True)]
    return [_epsilon_of_scores(split, scores[split]) for split in sorted(scores, reverse=True)]


def _epsilon_of_scores(split: str, scores: ScoresSummary) -> Value:
    if scores.uncovered:
        title = f"{scores.uncovered} scores of this split are not covered"
        return Value(text="none holds", detail=split, title=title, missing=True)
    shown = _epsilon(scores.epsilon, f"at delta {scores.delta:g}, {scores.releases} answers in this run")
    return replace(shown, detail=split)


def _status(ledger: LedgerSummary) -> str:
    if ledger.uncovered:
        return f"no epsilon holds: {ledger.uncovered} releases are not covered"
    words = ["paused: budget spent" if ledger.paused else "open"]
    if ledger.contradictions:
        words.append(f"{ledger.contradictions} declarations refused")
    return ", ".join(words)


def _epsilon(value: float, title: str) -> Value:
    """Return what was spent, rounded up."""
    return Value(text=f"{math.ceil(value * 1000 - 1e-6) / 1000:.3f}", title=title)


def _left(value: float) -> Value:
    """Return what may still be spent, rounded down."""
    return Value(text=f"{math.floor(value * 1000) / 1000:.3f}", title=repr(value))
