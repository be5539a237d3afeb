"""What needs a hand: hospitals that are gone or only seem to work, certificates that end, runs that stand still.

A node may go on beating, and count as online, after its worker has died; only that its tasks stay unanswered shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from deploy.coordinator.overview import Certificate, Connection, Overview, Seat
from deploy.coordinator.run import Participant, Run, Standing
from deploy.web.words import ago, day, in_days, span
from server_app.dispatch import TRAINING_KINDS

_LONG_S = 1800.0
_WARN_S = 30 * 86_400.0
# Whoever has a new authority needs new kits everywhere.
_WARN_AUTHORITY_S = 180 * 86_400.0
_REMEDIES = {
    "server": "aegis enrol renew",
    "superlink": "found a new consortium in time",
    "ca": "found a new consortium in time; every hospital needs a new kit",
}


class Weight(StrEnum):
    """How much a finding matters: `BAD` stops something now, `WARN` will, or may have."""

    BAD = "bad"
    WARN = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that needs a hand, in a sentence or two that say what to do; `subject` is what it is about."""

    weight: Weight
    subject: str
    text: str


def find(overview: Overview) -> tuple[Finding, ...]:
    """Return what needs a hand, the worst first."""
    found = [
        *(_bad("what is shown", text) for text in overview.troubles),
        *([_bad("superlink", overview.superlink.failure)] if overview.superlink.failure else []),
        *(item for one in overview.certificates for item in _find_in_certificate(one, overview.now)),
        *(item for seat in overview.seats for item in _find_in_seat(seat, overview)),
        *(_find_in_run(overview.run, overview) if overview.run else ()),
    ]
    return tuple(sorted(found, key=lambda item: item.weight is not Weight.BAD))


def ends_soon(certificate: Certificate, now: float) -> bool:
    """Return whether `certificate` needs to be renewed, or has ended."""
    limit_s = _WARN_AUTHORITY_S if certificate.name == "ca" else _WARN_S
    return certificate.ends is not None and certificate.ends - now < limit_s


def _bad(subject: str, text: str) -> Finding:
    return Finding(weight=Weight.BAD, subject=subject, text=text)


def _warn(subject: str, text: str) -> Finding:
    return Finding(weight=Weight.WARN, subject=subject, text=text)


def _find_in_certificate(certificate: Certificate, now: float) -> Iterator[Finding]:
    subject = f"certificate {certificate.name!r}"
    if certificate.ends is None:
        if certificate.name == "server":
            yield _warn(subject, certificate.trouble)
        return
    left_s, remedy = certificate.ends - now, _REMEDIES[certificate.name]
    if left_s <= 0:
        yield _bad(subject, f"It ended {ago(-left_s)}, and no hospital connects any more: {remedy}.")
    elif ends_soon(certificate, now):
        yield _warn(subject, f"It ends {in_days(left_s)}, on {day(certificate.ends)}: {remedy}.")


def _find_in_seat(seat: Seat, overview: Overview) -> Iterator[Finding]:
    now, run = overview.now, overview.run
    if seat.revoked and seat.connected:
        yield _bad(seat.hospital, "It is revoked and still connected: withdraw its key from the SuperLink.")
    elif seat.connection is Connection.OFFLINE:
        heard = f"; last heard of {ago(now - seat.last_contact)}" if seat.last_contact is not None else ""
        yield _warn(
            seat.hospital,
            f"It was connected before and is offline{heard}. Its container may seem to run all the same: "
            "the hospital restarts it.",
        )
    elif seat.connection is Connection.ONLINE and run is not None and seat.part is not None:
        yield from _find_zombie(seat.part, run, now)


def _find_zombie(part: Participant, run: Run, now: float) -> Iterator[Finding]:
    """Find a training task that nobody seems to work on; of evaluations the log does not say at once who answered."""
    task = part.waiting
    if run.standing is not Standing.IN_PROGRESS or task is None or task.kind not in TRAINING_KINDS:
        return
    waited_s = now - task.sent
    if waited_s > max(_LONG_S, run.patience_s):
        yield _warn(
            part.hospital,
            f"It counts as online and has not answered a task ({task.kind}, version {task.version}) for "
            f"{span(waited_s)}. Its worker may have died: the hospital restarts its container.",
        )


def _find_in_run(run: Run, overview: Overview) -> Iterator[Finding]:
    now = overview.now
    subject = f"run {run.name}"
    for text in run.doubts:
        yield _warn(subject, text)
    if run.standing is Standing.FAILED:
        yield _bad(subject, f"It failed: {run.reason or 'no reason was recorded.'}")
    elif run.standing is Standing.IN_PROGRESS:
        silent_s = now - run.newest if run.newest is not None else 0.0
        if silent_s > max(_LONG_S, run.patience_s):
            yield _warn(
                subject, f"It has written nothing for {span(silent_s)}. If its server was killed, resume the run."
            )
        known = {seat.hospital for seat in overview.seats}
        for part in run.participants if overview.consortium else ():
            if part.hospital not in known:
                yield _warn(part.hospital, f"It is named in {subject} and not in consortium.toml.")
    for part in run.participants:
        if part.budget is not None and not part.budget.holds:
            yield _warn(
                part.hospital, "No epsilon holds for it: it released without protection, or a declaration was refused."
            )
