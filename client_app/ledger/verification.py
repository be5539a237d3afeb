"""Checks a ledger against itself and its anchor: which row was altered, dropped, moved or slipped in, what is too old.

Opening a ledger refuses at the first finding; `aegis ledger verify` lists them all.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from client_app.ledger.anchor import Position
from client_app.ledger.balance import Balance
from client_app.ledger.rows import START, Kind, Row, chain_digest, seal_of
from federation.errors import LedgerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about a ledger that should not be.

    Attributes:
        seq: number of the row at which it shows; 0 for the ledger as a whole.
        text: what was expected and found.
    """

    seq: int
    text: str


@dataclass(slots=True)
class Audit:
    """The outcome of reading a whole ledger.

    Attributes:
        findings: what is wrong; empty for a sound ledger.
        notes: what is odd but harmless: a clock that was set back.
        balance: what the rows add up to, those with findings left out where they make no sense.
        last: the last row; None in a ledger without rows.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    balance: Balance = field(default_factory=Balance)
    last: Row | None = None


def audit_rows(
    rows: Iterable[Row], *, hospital_id: str, key: bytes | None = None, anchor: Position | None = None
) -> Audit:
    """Return what reading `rows` shows.

    Guarantee: of a ledger whose last row the anchor names, any row that was altered, dropped, moved or inserted is a
        finding, whatever else was adapted to it, to anyone who lacks the key; so is every ledger older than its anchor.
    Not guaranteed: without key and anchor only careless changes show, because whoever rewrites every following digest
        makes another sound chain; and a ledger and an anchor that were both set back to the same moment agree. The
        server's mirror of the spending notices that within a run.

    Args:
        rows: all rows, in the order of their numbers.
        hospital_id: whose ledger this should be.
        key: the hospital's key; None to leave the seals unchecked.
        anchor: where the ledger stood last; None to leave that unchecked.
    """
    audit = Audit()
    anchored = START if anchor is not None and anchor.seq == 0 else None
    for row in rows:
        audit.findings += [Finding(seq=row.seq, text=text) for text in _check_row(row, audit.last, key)]
        if audit.last is not None and row.time < audit.last.time:
            audit.notes.append(
                Finding(seq=row.seq, text=f"the clock was set back, from {audit.last.time} to {row.time}")
            )
        try:
            audit.balance.apply(row)
        except LedgerError as error:
            audit.findings.append(Finding(seq=row.seq, text=str(error)))
        if anchor is not None and row.seq == anchor.seq:
            anchored = row.digest
        audit.last = row
    audit.findings += [Finding(seq=0, text=text) for text in _check_identity(audit, hospital_id, anchor)]
    if anchor is not None:
        audit.findings += _check_position(audit.last.seq if audit.last else 0, anchored, anchor)
    return audit


def _check_row(row: Row, before: Row | None, key: bytes | None) -> Iterator[str]:
    expected = before.seq + 1 if before else 1
    if row.seq != expected:
        yield f"Expected row {expected} next, found row {row.seq}: rows are missing or were moved."
    previous = before.digest if before else START
    if row.digest != chain_digest(previous, seq=row.seq, kind=row.kind, time=row.time, body=row.body):
        yield "Expected the digest of this row after the one before it, found another: one of the two was changed."
    if key is not None and not hmac.compare_digest(row.seal, seal_of(row.digest, key)):
        yield "Expected this hospital's seal, found another: the row was not written under its key."


def _check_identity(audit: Audit, hospital_id: str, anchor: Position | None) -> Iterator[str]:
    genesis = audit.balance.genesis
    if not genesis:
        yield f"Expected a {Kind.GENESIS.value} row, found none."
        return
    if genesis["hospital"] != hospital_id:
        yield f"Expected the ledger of hospital {hospital_id!r}, found that of {genesis['hospital']!r}."
    if anchor is not None and genesis["ledger"] != anchor.ledger_id.hex():
        yield (
            f"Expected the ledger {anchor.ledger_id.hex()} that the anchor names, found {genesis['ledger']}: the file "
            "was replaced by another ledger."
        )


def _check_position(last: int, anchored: bytes | None, anchor: Position) -> Iterator[Finding]:
    if last < anchor.seq:
        yield Finding(
            seq=last,
            text=f"Expected at least the {anchor.seq} rows that the anchor has seen, found {last}: an old copy of the "
            "ledger was restored, or its last rows were lost. Restore the newest one.",
        )
    elif anchored != anchor.digest:
        yield Finding(
            seq=anchor.seq,
            text="Expected the digest that the anchor has seen at this row, found another: the ledger was rewritten.",
        )
    elif last > anchor.seq + 1:
        yield Finding(
            seq=last,
            text=f"Expected at most one row after the {anchor.seq} that the anchor has seen, found "
            f"{last - anchor.seq}: an old copy of the key folder was restored. Restore the newest one.",
        )
