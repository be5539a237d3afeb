"""What the ledger says as the page shows it: spent, left and a forecast for every data set and delta.

Nothing is locked and nothing changed; a hospital may be writing all the while.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from client_app.ledger.balance import Booking, Standing
from client_app.ledger.files import LedgerPaths
from client_app.ledger.inspection import Inspection, inspect_ledger
from client_app.ledger.release import GENERATOR_RUN
from client_app.ledger.summary import Line, summarize
from deploy.status_page.forecast import releases_left


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One data set at one delta.

    Attributes:
        line: what `aegis ledger show` says of it.
        more: releases like the newest one that still fit; None where no epsilon holds, or there is no such release.
        times: of its releases by runs, in seconds since 1970, as far as they can be read.
    """

    line: Line
    more: int | None
    times: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A ledger at one moment.

    Attributes:
        accounts: by data set and delta.
        findings: number of faults; `aegis ledger verify` names them.
        anchored: whether key and anchor were at hand, without which only careless changes show.
        under_way: releases that are paid for and neither made nor given up.
    """

    accounts: tuple[Account, ...] = ()
    findings: int = 0
    anchored: bool = True
    under_way: int = 0

    @property
    def releases(self) -> int:
        """The number of bookings of all data sets that were not cancelled."""
        counted: dict[str, int] = {}
        for account in self.accounts:
            standings = account.line.standings
            counted[account.line.data_set] = sum(standings.values()) - standings[Standing.CANCELLED]
        return sum(counted.values())


def read_spending(state_dir: Path, keys_dir: Path, hospital_id: str) -> Spending:
    """Return what the ledger of `hospital_id` says; nothing where there never was one.

    Raises:
        LedgerError: a file is missing or cannot be read at all.
    """
    paths = LedgerPaths.of(state_dir, hospital_id, keys_dir)
    if not os.path.lexists(paths.rows) and not os.path.lexists(paths.anchor):
        return Spending()
    found = inspect_ledger(state_dir, hospital_id, key_folder=keys_dir if _at_hand(paths) else None)
    return Spending(
        accounts=tuple(_account(line, found) for line in summarize(found.audit.balance)),
        findings=len(found.audit.findings),
        anchored=found.anchored,
        under_way=len(found.audit.balance.open_rows()),
    )


def ledger_stamp(state_dir: Path, keys_dir: Path, hospital_id: str) -> tuple[object, ...]:
    """Return what tells one state of the ledger's files from another, without opening them.

    Raises:
        LedgerError: the two folders are one.
    """
    paths = LedgerPaths.of(state_dir, hospital_id, keys_dir)
    files = (paths.rows, paths.rows.with_name(f"{paths.rows.name}-wal"), paths.anchor, paths.key)
    return tuple(file_stamp(path) for path in files)


def file_stamp(path: Path) -> tuple[int, ...]:
    """Return what changes when the file at `path` does; nothing where it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _at_hand(paths: LedgerPaths) -> bool:
    """Return whether this process may look at key and anchor; where they are gone, that is the ledger's own error."""
    closed = [path for path in (paths.anchor, paths.key) if os.path.lexists(path) and not os.access(path, os.R_OK)]
    return os.access(paths.anchor.parent, os.R_OK | os.X_OK) and not closed


def _account(line: Line, found: Inspection) -> Account:
    """Return `line` with what a forecast needs; the training of a generator is no release that will come again."""
    counted = [
        booking
        for booking in found.audit.balance.bookings.values()
        if booking.request.data_set == line.data_set
        and booking.request.run_id != GENERATOR_RUN
        and booking.standing is not Standing.CANCELLED
    ]
    written = {row.seq: row.time for row in found.rows}
    times = [_seconds(written.get(booking.seq, "")) for booking in counted]
    return Account(line=line, more=_more(line, counted), times=tuple(time for time in times if time is not None))


def _more(line: Line, counted: list[Booking]) -> int | None:
    if line.spend is None or line.latest is None or not line.spend.claimable:
        return None
    requests = [booking.request for booking in counted if booking.request.delta == line.latest.delta]
    own = [request for request in requests if request.event is not None]
    return releases_left(own[-1], line.spend.history) if own else None


def _seconds(time: str) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError):
        return None
