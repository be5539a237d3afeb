"""What the coordinator's page shows and in which words; the template only places it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deploy.coordinator.budgets import Budget
from deploy.coordinator.curve import draw_accuracy
from deploy.coordinator.overview import Certificate, Connection, Overview, Seat
from deploy.coordinator.run import Participant, Run, Standing
from deploy.coordinator.watch import Finding, ends_soon, find
from deploy.web import words
from server_app.report.formats import MISSING, Value, show_count, show_epsilon, show_reasons, show_share
from server_app.report.hospitals import RefusalRow
from server_app.report.pieces import Figure

_CONNECTION_MOODS: Mapping[Connection, str] = {
    Connection.ONLINE: "good",
    Connection.OFFLINE: "warn",
    Connection.UNKNOWN: "warn",
}
_STANDING_MOODS: Mapping[Standing, str] = {
    Standing.COMPLETED: "good",
    Standing.FAILED: "bad",
    Standing.STOPPED: "warn",
}
_IDLE = "idle"
_CERTIFICATES = {
    "server": "Server's certificate",
    "superlink": "SuperLink's certificate",
    "ca": "Certificate authority",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRow:
    """One hospital of the consortium; `mood` colours its `connection`, and `since` says for how long, if known."""

    hospital: str
    connection: str
    mood: str
    since: str
    contact: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One hospital in the run; `share` is the part of its budget that is spent, None without one."""

    hospital: str
    tags: list[tuple[str, str]]
    examples: Value
    updates: Value
    staleness: Value
    refused: Value
    reasons: list[str]
    spent: Value
    left: Value
    share: float | None
    accuracy: Value
    updated: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One line of the list of runs; `mood` colours its `standing`."""

    name: str
    standing: str
    mood: str
    modified: Value
    shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The run that is shown; `curve` is an `<svg>` element, or empty."""

    name: str
    standing: str
    mood: str
    reason: str
    newest: Value
    figures: list[Figure]
    curve: str
    basis: str
    parts: list[PartRow]
    refusals: list[RefusalRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything the template shows."""

    title: str
    subtitle: str
    moment: str
    findings: tuple[Finding, ...]
    seats: list[SeatRow]
    asked: str
    certificates: list[Figure]
    run: RunView | None
    runs: list[RunRow] = field(default_factory=list)


def build_view(overview: Overview) -> View:
    """Return what the page about `overview` shows."""
    now, run = overview.now, overview.run
    return View(
        title=overview.consortium or "Coordinator",
        subtitle=f"Hospitals connect to {overview.server}." if overview.server else "",
        moment=words.moment(now),
        findings=find(overview),
        seats=[_seat_row(seat, now) for seat in overview.seats],
        asked=words.ago(max(0.0, now - overview.superlink.asked_at)),
        certificates=[_certificate(item, now) for item in overview.certificates],
        run=_run_view(run, now) if run else None,
        runs=[
            RunRow(
                name=entry.name,
                standing=entry.standing.value,
                mood=_STANDING_MOODS.get(entry.standing, _IDLE),
                modified=_when(entry.modified, now),
                shown=run is not None and entry.name == run.name,
            )
            for entry in overview.runs
        ],
    )


def _seat_row(seat: Seat, now: float) -> SeatRow:
    revoked = f"revoked on {seat.revoked}" if seat.revoked else ""
    return SeatRow(
        hospital=seat.hospital,
        connection=revoked or seat.connection.value,
        mood="bad" if seat.revoked and seat.connected else _CONNECTION_MOODS.get(seat.connection, _IDLE),
        since=f"for {words.span(max(0.0, now - seat.since))}" if seat.since is not None else "",
        contact=_when(seat.last_contact, now, why_missing="never heard of, as far as anybody knows now"),
    )


def _run_view(run: Run, now: float) -> RunView:
    worst = run.worst.hospital if run.worst else ""
    return RunView(
        name=run.name,
        standing=run.standing.value,
        mood=_STANDING_MOODS.get(run.standing, _IDLE),
        reason=run.reason,
        newest=_when(run.newest, now),
        figures=_figures(run),
        curve=draw_accuracy(run.curve, worst),
        basis=run.basis,
        parts=[_part_row(part, run, now) for part in run.participants],
        refusals=_refusals(run),
    )


def _figures(run: Run) -> list[Figure]:
    no_update = "no update was applied"
    worst = run.worst
    return [
        Figure(
            label="Model version",
            value=show_count(run.version),
            note=f"of {show_count(run.rounds).text} planned" if run.rounds is not None else "",
        ),
        Figure(
            label="Accuracy",
            value=show_share(run.accuracy, "the server has no images to evaluate on, or has not yet"),
            note="on the server's images" if run.accuracy is not None else "",
        ),
        Figure(
            label="Accuracy at the worst hospital",
            value=show_share(worst.accuracy if worst else None, "no hospital was evaluated"),
            note=worst.hospital if worst else "",
        ),
        Figure(label="Updates applied", value=show_count(run.updates)),
        Figure(
            label="Staleness",
            value=_decimals(run.staleness, no_update),
            note=f"versions on average, at most {run.stalest}" if run.staleness is not None else no_update,
        ),
    ]


def _part_row(part: Participant, run: Run, now: float) -> PartRow:
    budget = part.budget
    return PartRow(
        hospital=part.hospital,
        tags=list(_tags(part, run)),
        examples=show_count(part.examples, "" if part.examples else "never enrolled in this run"),
        updates=Value(text=f"{show_count(part.updates).text} of {show_count(part.dispatched).text}"),
        staleness=_decimals(part.staleness, "no update of it was applied"),
        refused=show_count(sum(part.refused.values())),
        reasons=show_reasons(part.refused),
        spent=_spent(budget),
        left=_left(budget),
        share=min(1.0, budget.spent / budget.cap) if budget and budget.cap and budget.holds else None,
        accuracy=show_share(part.accuracy, "not evaluated"),
        updated=_when(part.updated, now, why_missing="no update of it was accepted"),
    )


def _tags(part: Participant, run: Run) -> Iterator[tuple[str, str]]:
    """Yield words about a hospital with their moods."""
    if run.worst is not None and part.hospital == run.worst.hospital:
        yield "worst", "warn"
    if not part.updates and run.standing is not Standing.IN_PROGRESS:
        yield "silent", "warn"
    if part.budget is not None and part.budget.paused:
        yield "budget spent", _IDLE


def _spent(budget: Budget | None) -> Value:
    if budget is None:
        return Value(text=MISSING, title="no mechanism, or nothing declared yet", missing=True)
    return show_epsilon(budget.spent if budget.holds else None, budget.delta)


def _left(budget: Budget | None) -> Value:
    """Return what is left, never more than it is."""
    if budget is None or not budget.holds or not math.isfinite(budget.left):
        return Value(text=MISSING, title="not known", missing=True)
    return Value(text=f"{math.floor(budget.left * 1000) / 1000:.3f}", title=f"of {budget.cap:g}")


def _refusals(run: Run) -> list[RefusalRow]:
    """Return every reason with its count, and how often of that the sender was none of the participants."""
    known = {code: sum(part.refused.get(code, 0) for part in run.participants) for code in run.refused}
    ordered = sorted(run.refused.items(), key=lambda item: (-item[1], item[0]))
    return [
        RefusalRow(reason=code, total=show_count(count), unknown=show_count(max(0, count - known[code])))
        for code, count in ordered
        if count
    ]


def _certificate(certificate: Certificate, now: float) -> Figure:
    label = _CERTIFICATES.get(certificate.name, certificate.name)
    if certificate.ends is None:
        return Figure(label=label, value=Value(text=MISSING, title=certificate.trouble, missing=True), note="not known")
    left_s = certificate.ends - now
    return Figure(
        label=label,
        value=Value(text=f"ends {words.in_days(left_s)}" if left_s > 0 else f"ended {words.ago(-left_s)}"),
        note=words.day(certificate.ends),
        alarming=ends_soon(certificate, now),
    )


def _when(time: float | None, now: float, *, why_missing: str = "not known") -> Value:
    if time is None:
        return Value(text=MISSING, title=why_missing, missing=True)
    return Value(text=words.ago(max(0.0, now - time)), title=words.moment(time))


def _decimals(value: float | None, why_missing: str) -> Value:
    if value is None or not math.isfinite(value):
        return Value(text=MISSING, title=why_missing, missing=True)
    return Value(text=f"{value:.2f}")
