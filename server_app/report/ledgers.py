"""The table of privacy ledgers: what each hospital has spent, by three accounts, and what is left."""

from __future__ import annotations

import math
from dataclasses import dataclass

from server_app.report.formats import Value, show_count
from server_app.report.order import natural_key
from server_app.summary import LedgerSummary, Summary

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
    status: str
    alarming: bool


def ledger_rows(summary: Summary) -> list[LedgerRow]:
    """Return a row for every hospital that declared a mechanism, in natural order of their ids."""
    return [
        _ledger_row(hospital, part.ledger)
        for hospital, part in sorted(summary.per_hospital.items(), key=lambda item: natural_key(item[0]))
        if part.ledger is not None
    ]


def _ledger_row(hospital: str, ledger: LedgerSummary) -> LedgerRow:
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
        status=_status(ledger),
        alarming=bool(ledger.uncovered or ledger.contradictions),
    )


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
