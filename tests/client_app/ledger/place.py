"""A hospital's two volumes in a folder, and requests with the defaults that most tests need."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_app.ledger import Ledger, ReleaseRequest
from federation.accounting.events import Event, GaussianRelease, Relation, Unit
from federation.accounting.mechanism import Mechanism

MECHANISM = Mechanism(name="update-gaussian", relation=Relation.ZERO_OUT, unit=Unit.UPDATE, clip_norm=1.0)
NO_MECHANISM = Mechanism(name="none", relation=Relation.ZERO_OUT, unit=Unit.UPDATE, clip_norm=1.0)

# sqrt(2 ln(1.25 / 1e-5)) / 24.22 = 0.2 per release, by the classic formula that the linear account charges.
FIFTH = GaussianRelease(noise_multiplier=24.22)


@dataclass(frozen=True)
class Place:
    """The folders of one hospital."""

    root: Path
    hospital_id: str = "north"

    @property
    def folder(self) -> Path:
        return self.root / "volume"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def rows(self) -> Path:
        return self.folder / f"{self.hospital_id}.ledger"

    @property
    def anchor(self) -> Path:
        return self.keys / f"{self.hospital_id}.anchor"

    @property
    def key(self) -> Path:
        return self.keys / f"{self.hospital_id}.key"

    def open(self, *, wait_s: float = 0.0) -> Ledger:
        return Ledger.open(self.folder, hospital_id=self.hospital_id, key_folder=self.keys, wait_s=wait_s)

    def raw_rows(self) -> list[dict[str, Any]]:
        """All rows as SQLite itself reads them, from a closed ledger."""
        with sqlite3.connect(self.rows) as database:
            database.row_factory = sqlite3.Row
            rows = [dict(row) for row in database.execute("SELECT * FROM rows ORDER BY seq")]
        database.close()
        return rows

    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.raw_rows()]

    def tamper(self, *statements: str) -> None:
        """Run SQL on the file as somebody without our triggers would."""
        database = sqlite3.connect(self.rows, isolation_level=None)
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            database.execute(statement)
        for _, sql in triggers:
            database.execute(sql)
        database.close()


def request(message: str = "m1", event: Event | None = FIFTH, **changes: Any) -> ReleaseRequest:
    defaults: dict[str, Any] = {
        "run_id": "run",
        "message_id": message,
        "data_set": "scans",
        "mechanism": NO_MECHANISM if event is None else MECHANISM,
        "event": event,
        "delta": 1e-5,
        "cap": 8.0,
        "account": "linear",
    }
    return ReleaseRequest(**{**defaults, **changes})


def release(ledger: Ledger, message: str, **changes: Any) -> None:
    """Reserve and commit one request."""
    ledger.commit(ledger.reserve(request(message, **changes)))
