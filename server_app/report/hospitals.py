"""The tables of a report: what each hospital contributed and got, and what was refused."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from server_app.report.formats import Value, show_count, show_epsilon, show_reasons, show_share
from server_app.report.order import natural_key
from server_app.summary import HospitalSummary, Summary

NO_CLASSES = "no class has both positive and negative images"
_AT_HOME = "under a privacy mechanism it stays at the hospital"
_NOT_EVALUATED = "the final model was not evaluated at this hospital"


@dataclass(frozen=True, kw_only=True, slots=True)
class HospitalRow:
    """One line of the table of hospitals."""

    hospital: str
    worst: bool
    silent: bool
    examples: Value
    dispatched: Value
    updates: Value
    refused: Value
    reasons: list[str]
    accuracy: Value
    share: float | None
    auroc: Value
    epsilon: Value
    benefit: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusalRow:
    """How often one reason for refusal occurred, and how often of that with senders outside the configuration."""

    reason: str
    total: Value
    unknown: Value


def hospital_rows(summary: Summary) -> list[HospitalRow]:
    """Return a row for every configured hospital: the worst first, those that were not evaluated last."""

    def rank(hospital: str) -> tuple[bool, bool, float, tuple[object, ...]]:
        accuracy = summary.per_hospital[hospital].accuracy
        evaluated = accuracy is not None and math.isfinite(accuracy)
        first = hospital != summary.worst_hospital
        return first, not evaluated, accuracy if accuracy is not None and evaluated else 0.0, natural_key(hospital)

    return [_hospital_row(summary, hospital) for hospital in sorted(summary.per_hospital, key=rank)]


def _hospital_row(summary: Summary, hospital: str) -> HospitalRow:
    part = summary.per_hospital[hospital]
    benefit = part.benefit_per_epsilon
    return HospitalRow(
        hospital=hospital,
        worst=hospital == summary.worst_hospital,
        silent=hospital in summary.silent_hospitals,
        examples=show_count(part.examples, "" if part.examples else "never enrolled"),
        dispatched=show_count(part.dispatched),
        updates=show_count(part.updates),
        refused=show_count(sum(part.refused.values())),
        reasons=show_reasons(part.refused),
        accuracy=show_share(part.accuracy, _NOT_EVALUATED),
        share=part.accuracy if part.accuracy is not None and 0.0 <= part.accuracy <= 1.0 else None,
        auroc=show_share(part.auroc, _why_no_auroc(part)),
        epsilon=show_epsilon(part.epsilon_spent, part.delta),
        benefit=show_share(benefit, "no epsilon to relate the accuracy to"),
    )


def _why_no_auroc(part: HospitalSummary) -> str:
    if part.accuracy is None:
        return _NOT_EVALUATED
    return _AT_HOME if part.ledger is not None or part.scores else NO_CLASSES


def refusal_rows(summary: Summary) -> list[RefusalRow]:
    """Return a row for every reason for which updates were refused, the most frequent first."""
    known = Counter[str]()
    for hospital in summary.per_hospital.values():
        known.update(hospital.refused)
    reasons = sorted(summary.refused.items(), key=lambda item: (-item[1], item[0]))
    return [
        RefusalRow(reason=reason, total=show_count(count), unknown=show_count(max(0, count - known[reason])))
        for reason, count in reasons
        if count
    ]
