"""Every way to change the rows of a ledger shows, with the number of the row, to whoever has key and anchor."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from client_app.ledger import inspection
from client_app.ledger.inspection import inspect_ledger
from client_app.ledger.rows import Row
from federation.errors import LedgerError
from tests.client_app.ledger.place import Place, request


@pytest.fixture
def filled(place: Place) -> Place:
    """Genesis, then five releases: rows 1 to 11."""
    with place.open() as ledger:
        for number in range(5):
            ledger.commit(ledger.reserve(request(f"m{number}")))
    return place


def findings(place: Place, *, with_keys: bool = True) -> list[tuple[int, str]]:
    audit = inspect_ledger(place.folder, "north", key_folder=place.keys if with_keys else None).audit
    return [(finding.seq, finding.text) for finding in audit.findings]


def rewrite(place: Place, start: int, **changes: Any) -> None:
    """Change row `start` and recompute every digest from there on, as an insider without the key could."""
    rows = place.raw_rows()
    previous = rows[start - 2]["digest"] if start > 1 else bytes(32)
    for row in rows[start - 1 :]:
        row.update(changes if row["seq"] == start else {})
        text = json.dumps([row["seq"], row["kind"], row["time"], row["body"]])
        row["digest"] = previous = hashlib.sha256(previous + text.encode()).digest()
    columns = ("kind", "time", "body", "digest")
    place.tamper(
        *(
            f"UPDATE rows SET kind = '{row['kind']}', time = '{row['time']}', body = '{row['body']}', "
            f"digest = x'{row['digest'].hex()}' WHERE seq = {row['seq']}"
            for row in rows
            if set(columns) <= set(row)
        )
    )


def test_sound_ledger_has_no_findings(filled: Place) -> None:
    assert findings(filled) == []
    assert findings(filled, with_keys=False) == []


@pytest.mark.parametrize(
    ("statements", "seqs"),
    [
        (["UPDATE rows SET body = replace(body, '24.22', '99.9') WHERE seq = 4"], {4}),
        (["UPDATE rows SET time = '2001-01-01T00:00:00.000000+00:00' WHERE seq = 4"], {4}),
        (["UPDATE rows SET kind = 'cancel' WHERE seq = 5"], {5}),
        (["UPDATE rows SET digest = zeroblob(32) WHERE seq = 6"], {6, 7}),
        (["UPDATE rows SET seal = zeroblob(32) WHERE seq = 6"], {6}),
        (["UPDATE rows SET body = replace(body, 'north', 'south') WHERE seq = 1"], {0, 1}),
        (["DELETE FROM rows WHERE seq = 5"], {6}),
        (["DELETE FROM rows WHERE seq = 1"], {0, 2}),
        (["DELETE FROM rows WHERE seq = 11"], {10}),
        (["DELETE FROM rows WHERE seq > 1"], {1}),
        (["DELETE FROM rows"], {0}),
        (
            [
                "UPDATE rows SET seq = 99 WHERE seq = 4",
                "UPDATE rows SET seq = 4 WHERE seq = 6",
                "UPDATE rows SET seq = 6 WHERE seq = 99",
            ],
            {4, 5, 6, 7},
        ),
        (
            [
                "UPDATE rows SET seq = -seq WHERE seq > 5",
                "UPDATE rows SET seq = 1 - seq WHERE seq < 0",
                "INSERT INTO rows SELECT 6, kind, time, body, digest, seal FROM rows WHERE seq = 2",
            ],
            {6, 7},
        ),
        (["INSERT INTO rows SELECT 12, kind, time, body, digest, seal FROM rows WHERE seq = 10"], {12}),
    ],
    ids=[
        "altered cost",
        "altered time",
        "commit made a cancel",
        "altered digest",
        "altered seal",
        "altered genesis",
        "dropped row",
        "dropped genesis",
        "dropped last row",
        "all but genesis dropped",
        "all rows dropped",
        "two rows exchanged",
        "row inserted",
        "row appended",
    ],
)
def test_change_of_rows_is_found_where_it_is_and_the_ledger_not_opened(
    filled: Place, statements: list[str], seqs: set[int]
) -> None:
    filled.tamper(*statements)

    found = {seq for seq, _ in findings(filled)}

    assert seqs <= found
    with pytest.raises(LedgerError, match=r"Expected a sound ledger .* Nothing was released"):
        filled.open()


def test_rows_that_a_running_client_writes_meanwhile_are_no_fault(
    filled: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = inspection._read_rows

    def write_first(path: Path) -> tuple[Row, ...]:
        for number in range(3):
            ledger.reserve(request(f"meanwhile-{number}"))
        return read(path)

    with filled.open() as ledger:
        monkeypatch.setattr(inspection, "_read_rows", write_first)
        found = inspection.inspect_ledger(filled.folder, "north", key_folder=filled.keys)

    assert found.audit.findings == []
    assert len(found.rows) == 12


def test_dropped_rows_are_named(filled: Place) -> None:
    filled.tamper("DELETE FROM rows WHERE seq IN (5, 6)")

    assert (7, "Expected row 5 next, found row 7: rows are missing or were moved.") in findings(filled)


@pytest.mark.parametrize("start", [1, 2, 6, 10, 11])
def test_rewritten_chain_lacks_the_seal_and_contradicts_the_anchor(filled: Place, start: int) -> None:
    row = filled.raw_rows()[start - 1]
    rewrite(filled, start, time="2001-01-01T00:00:00.000000+00:00", body=row["body"])

    with_keys, without = findings(filled), findings(filled, with_keys=False)

    assert {seq for seq, _ in with_keys} >= set(range(start, 12))
    assert any("the ledger was rewritten" in text for _, text in with_keys)
    assert without == []


def test_row_appended_by_someone_without_the_key_is_no_interrupted_call(filled: Place) -> None:
    last = filled.raw_rows()[-1]
    body = '{"reserve":2}'
    text = json.dumps([12, "expire", last["time"], body])
    digest = hashlib.sha256(last["digest"] + text.encode()).digest()
    filled.tamper(
        f"INSERT INTO rows VALUES (12, 'expire', '{last['time']}', '{body}', x'{digest.hex()}', x'{digest.hex()}')"
    )

    with pytest.raises(LedgerError, match="row 12: Expected this hospital's seal"):
        filled.open()


def test_clock_that_was_set_back_is_a_note_and_changes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class SetBack(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(1999, 12, 31, tzinfo=tz)

    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("m1")))
        with monkeypatch.context() as patch:
            patch.setattr("client_app.ledger.rows.datetime", SetBack)
            ledger.commit(ledger.reserve(request("m2")))
        ledger.reserve(request("m3"))

    audit = inspect_ledger(place.folder, "north", key_folder=place.keys).audit
    with place.open() as ledger:
        assert ledger.spend("scans", 1e-5).releases == 3
    assert audit.findings == []
    assert [note.seq for note in audit.notes] == [4]
    assert "the clock was set back" in audit.notes[0].text


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rows SET kind = 'cancel'",
        "DELETE FROM rows",
        "INSERT OR REPLACE INTO rows SELECT * FROM rows WHERE seq = 2",
        "INSERT INTO rows SELECT 13, kind, time, body, digest, seal FROM rows WHERE seq = 2",
        "INSERT INTO rows SELECT 0, kind, time, body, digest, seal FROM rows WHERE seq = 2",
    ],
)
def test_file_itself_refuses_to_change_rows(filled: Place, statement: str) -> None:
    before = filled.raw_rows()
    database = sqlite3.connect(filled.rows, isolation_level=None)

    with pytest.raises(sqlite3.IntegrityError, match="a ledger row is"):
        database.execute(statement)

    database.close()
    assert filled.raw_rows() == before


def test_file_is_written_ahead_and_forced_to_disk_on_every_commit(place: Place) -> None:
    with place.open() as ledger:
        settings = [
            ledger._rows._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        ]

    assert settings == ["wal", 2]
