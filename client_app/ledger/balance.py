"""What the rows add up to: open reservations, what each message got, what each data set has cost.

The one place that knows which row may follow which; opening, verifying and showing a ledger all go through it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from client_app.ledger.release import ReleaseRequest, request_from_dict
from client_app.ledger.rows import SCHEMA_VERSION, Kind, Row
from federation.accounting.events import Event, History, Relation, Unit
from federation.errors import LedgerError

Message = tuple[str, str]


class Standing(StrEnum):
    """How far a booking got; every one but a cancelled one stays spent."""

    OPEN = "open"
    LOST = "lost"
    COMMITTED = "committed"
    CANCELLED = "cancelled"


@dataclass(slots=True, kw_only=True)
class Booking:
    """One reservation and what became of it.

    Attributes:
        seq: number of its row.
        request: what was booked.
        standing: how far it got.
    """

    seq: int
    request: ReleaseRequest
    standing: Standing = Standing.OPEN


@dataclass(slots=True)
class Tally:
    """The bookings of one data set that were not cancelled.

    Attributes:
        counts: protected releases per event.
        runs: the same per run.
        protections: number of protected releases per relation and unit.
        unprotected: number of the others.
        standings: number of bookings per standing, cancelled ones included.
        latest: the newest booking.
    """

    counts: dict[Event, int] = field(default_factory=dict)
    runs: dict[str, dict[Event, int]] = field(default_factory=dict)
    protections: dict[tuple[Relation, Unit], int] = field(default_factory=dict)
    unprotected: int = 0
    standings: dict[Standing, int] = field(default_factory=lambda: dict.fromkeys(Standing, 0))
    latest: ReleaseRequest | None = None

    @property
    def releases(self) -> int:
        """The number of bookings that count."""
        return sum(self.standings.values()) - self.standings[Standing.CANCELLED]

    def history(self, run_id: str | None = None, *, other_than: str | None = None) -> History:
        """Return the protected releases as a copy: all, those of one run, or without those of another."""
        counts = dict(self.counts if run_id is None else self.runs.get(run_id, {}))
        for event, count in self.runs.get(other_than or "", {}).items() if run_id != other_than else ():
            _step(counts, event, -count)
        return History(MappingProxyType(counts))

    def book(self, request: ReleaseRequest, step: int) -> None:
        """Count `request` once more (`step` 1) or once less (-1)."""
        if request.event is None:
            self.unprotected += step
            return
        _step(self.counts, request.event, step)
        _step(self.runs.setdefault(request.run_id, {}), request.event, step)
        _step(self.protections, (request.mechanism.relation, request.mechanism.unit), step)

    def move(self, before: Standing | None, after: Standing) -> None:
        """Count one booking under `after` instead of `before`."""
        if before is not None:
            self.standings[before] -= 1
        self.standings[after] += 1


class Balance:
    """The sum of all rows applied so far."""

    def __init__(self) -> None:
        """Begin before the first row."""
        self.genesis: dict[str, Any] = {}
        self.tallies: dict[str, Tally] = {}
        self.bookings: dict[int, Booking] = {}
        self._by_message: dict[Message, Booking] = {}

    def find(self, message: Message) -> Booking | None:
        """Return the booking of `message` that was not cancelled, if there is one."""
        return self._by_message.get(message)

    def open_rows(self) -> set[int]:
        """Return the numbers of the rows of reservations that nobody has closed."""
        return {seq for seq, booking in self.bookings.items() if booking.standing is Standing.OPEN}

    def requests(self, data_set: str, run_id: str) -> list[ReleaseRequest]:
        """Return what was booked for `data_set` under the run `run_id` and not cancelled, in order."""
        return [
            booking.request
            for booking in self.bookings.values()
            if booking.request.data_set == data_set
            and booking.request.run_id == run_id
            and booking.standing is not Standing.CANCELLED
        ]

    def tally(self, data_set: str, until: Message | None = None, *, inclusive: bool = True) -> Tally:
        """Return the tally of `data_set`, an empty one when nothing was booked for it.

        Args:
            data_set: its name.
            until: where this message is booked, a tally of what was booked up to it; None for everything.
            inclusive: whether the message itself counts.
        """
        last = self.find(until) if until else None
        if last is None:
            return self.tallies.get(data_set) or Tally()
        tally = Tally()
        for booking in self.bookings.values():
            counts = booking.seq < last.seq or (inclusive and booking is last)
            if counts and booking.request.data_set == data_set and booking.standing is not Standing.CANCELLED:
                tally.book(booking.request, 1)
                tally.move(None, booking.standing)
        return tally

    def apply(self, row: Row) -> None:
        """Take `row` into account.

        Raises:
            LedgerError: no honest client writes this row after those before it; nothing is changed.
        """
        if (row.kind == Kind.GENESIS) != (row.seq == 1):
            raise LedgerError(f"Expected the genesis as row 1 and nowhere else, found {row.kind!r} in row {row.seq}.")
        try:
            content = row.content
            if row.kind == Kind.GENESIS:
                self._begin(content)
            elif row.kind == Kind.RESERVE:
                self._reserve(row.seq, request_from_dict(content))
            else:
                self._close(Kind(row.kind), content["reserve"])
        except (KeyError, ValueError, TypeError) as error:
            raise LedgerError(f"Expected a row that a ledger writes, found {error!r}.") from error

    def _begin(self, content: dict[str, Any]) -> None:
        if content["schema"] != SCHEMA_VERSION:
            raise LedgerError(f"Expected schema version {SCHEMA_VERSION}, found {content['schema']!r}.")
        self.genesis = {key: str(content[key]) for key in ("ledger", "hospital")}

    def _reserve(self, seq: int, request: ReleaseRequest) -> None:
        if request.message in self._by_message:
            raise LedgerError(f"Expected message {request.message} to be charged once, found it charged again.")
        tally = self.tallies.setdefault(request.data_set, Tally())
        tally.book(request, 1)
        tally.move(None, Standing.OPEN)
        tally.latest = request
        self.bookings[seq] = self._by_message[request.message] = Booking(seq=seq, request=request)

    def _close(self, kind: Kind, seq: int) -> None:
        booking = self.bookings[seq]
        after, allowed = _CLOSING[kind]
        if booking.standing not in allowed:
            raise LedgerError(f"Expected no {kind.value} of reservation {seq}, which is {booking.standing.value}.")
        tally = self.tallies[booking.request.data_set]
        tally.move(booking.standing, after)
        booking.standing = after
        if after is Standing.CANCELLED:
            tally.book(booking.request, -1)
            del self._by_message[booking.request.message]


# Kind of row -> what a booking becomes by it, and from what. A lost one may be taken up by its own message again.
_CLOSING = {
    Kind.COMMIT: (Standing.COMMITTED, (Standing.OPEN, Standing.LOST)),
    Kind.CANCEL: (Standing.CANCELLED, (Standing.OPEN,)),
    Kind.EXPIRE: (Standing.LOST, (Standing.OPEN,)),
}


def _step(counts: dict[Any, int], key: Any, step: int) -> None:
    counts[key] = counts.get(key, 0) + step
    if not counts[key]:
        del counts[key]
