"""Which row may follow which: sequences that no honest client writes are faults, even under the right key."""

from __future__ import annotations

from typing import Any

import pytest

from client_app.ledger.release import request_as_dict
from client_app.ledger.rows import START, Kind, Row, make_row
from client_app.ledger.verification import audit_rows
from federation.accounting.events import History
from tests.client_app.ledger.place import FIFTH, request

KEY = bytes(range(32))
GENESIS = (Kind.GENESIS, {"schema": 1, "ledger": "00" * 16, "hospital": "north"})
RESERVE = (Kind.RESERVE, request_as_dict(request("m1")))
COMMIT, CANCEL, EXPIRE = ((kind, {"reserve": 2}) for kind in (Kind.COMMIT, Kind.CANCEL, Kind.EXPIRE))


def chain(*entries: tuple[Kind, dict[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    for seq, (kind, content) in enumerate(entries, start=1):
        previous = rows[-1].digest if rows else START
        rows.append(make_row(previous, seq=seq, kind=kind, content=content, key=KEY))
    return rows


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (COMMIT,),
        (CANCEL, RESERVE),
        (EXPIRE, COMMIT),
        (CANCEL, RESERVE, (Kind.COMMIT, {"reserve": 4})),
    ],
)
def test_sequence_that_a_client_writes_has_no_findings(entries: tuple[tuple[Kind, dict[str, Any]], ...]) -> None:
    assert audit_rows(chain(GENESIS, RESERVE, *entries), hospital_id="north", key=KEY).findings == []


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ((GENESIS, RESERVE, COMMIT, CANCEL), "Expected no cancel of reservation 2, which is committed"),
        ((GENESIS, RESERVE, COMMIT, COMMIT), "Expected no commit of reservation 2, which is committed"),
        ((GENESIS, RESERVE, COMMIT, EXPIRE), "Expected no expire of reservation 2, which is committed"),
        ((GENESIS, RESERVE, CANCEL, COMMIT), "Expected no commit of reservation 2, which is cancelled"),
        ((GENESIS, RESERVE, EXPIRE, CANCEL), "Expected no cancel of reservation 2, which is lost"),
        ((GENESIS, RESERVE, RESERVE), "to be charged once, found it charged again"),
        ((GENESIS, RESERVE, COMMIT, RESERVE), "to be charged once, found it charged again"),
        ((GENESIS, COMMIT), "Expected a row that a ledger writes, found KeyError"),
        ((GENESIS, (Kind.COMMIT, {"reserve": [2]})), "Expected a row that a ledger writes, found TypeError"),
        ((GENESIS, (Kind.COMMIT, {})), "Expected a row that a ledger writes, found KeyError"),
        ((GENESIS, (Kind.RESERVE, {"run": "r"})), "Expected a reservation's fields"),
        ((GENESIS, (Kind.RESERVE, {**RESERVE[1], "delta": 2.0})), "Expected a reservation's fields"),
        ((GENESIS, (Kind.RESERVE, {**RESERVE[1], "event": {"kind": "laplace"}})), "Expected a reservation's fields"),
        ((GENESIS, GENESIS), "Expected the genesis as row 1 and nowhere else"),
        ((RESERVE,), "Expected the genesis as row 1"),
        (((Kind.GENESIS, {**GENESIS[1], "schema": 2}),), "Expected schema version 1, found 2"),
        (((Kind.GENESIS, {**GENESIS[1], "hospital": "south"}),), "Expected the ledger of hospital 'north'"),
    ],
)
def test_sequence_that_no_client_writes_is_a_finding(
    entries: tuple[tuple[Kind, dict[str, Any]], ...], text: str
) -> None:
    findings = audit_rows(chain(*entries), hospital_id="north", key=KEY).findings

    assert any(text in finding.text for finding in findings), findings


def test_row_that_makes_no_sense_changes_no_sum() -> None:
    audit = audit_rows(chain(GENESIS, RESERVE, COMMIT, CANCEL, RESERVE), hospital_id="north", key=KEY)

    assert audit.balance.tally("scans").history() == History.of([FIFTH])
    assert [finding.seq for finding in audit.findings] == [4, 5]
