"""The ledger a client calls: reserve, make the release, commit, and only then let it leave.

A crash anywhere in between leaves the reservation spent, never a release without a row.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from client_app.ledger.anchor import Anchor, Position
from client_app.ledger.balance import Booking, Message, Standing
from client_app.ledger.files import LedgerPaths, open_files
from client_app.ledger.keys import make_folder
from client_app.ledger.lock import ClientLock
from client_app.ledger.reckoning import Reckoning, check_room, outlook_of, spend_of
from client_app.ledger.release import ReleaseRequest, Reservation, Spend, request_as_dict
from client_app.ledger.row_file import RowFile
from client_app.ledger.rows import Kind, Row, make_row
from client_app.ledger.verification import audit_rows
from federation.accounting.events import History
from federation.errors import AlreadyReleasedError, LedgerError, PrivacyError

_LOGGER = logging.getLogger("aegis.client")
_WAIT_S = 30.0


class Ledger:
    """The privacy ledger of one hospital, opened by its only client.

    Guarantee: for every data set, the epsilon of everything reserved and not cancelled, by the account that binds and
        at the request's delta, never exceeds the request's cap; neighbouring relation and unit are those of each row's
        mechanism. Once `reserve` has returned, its row is on the disk, whatever crashes. A message is charged at most
        once and committed at most once. A ledger that was changed, exchanged or set back is not opened.
    Not guaranteed: anything about a release that leaves before `commit` has returned: after a crash its message is
        taken up again and released a second time with fresh noise, for one charge. A ledger and a key folder restored
        from one backup agree with each other, and where both are gone a new ledger begins; the server's mirror notices
        it within a run, between runs nobody does. Events of different units or relations in one data set are added up,
        which bounds neither unit (`Spend.claimable`). A server that chooses noise, sampling or steps of later releases
        by what earlier ones showed: stopping at a cap is proven then for Renyi DP of one fixed order (Feldman and
        Zrnic, arXiv 2008.11193), not for the best of many orders or for composed loss distributions. Whoever may write
        both folders and read the key can write any history. Times are the machine's clock and decide nothing.
    """

    def __init__(self, lock: ClientLock, key: bytes, anchor: Anchor, rows: RowFile, hospital_id: str) -> None:
        """Take over open files, check them, and move the anchor over the row of an interrupted call; see `open`."""
        self._lock, self._key, self._anchor, self._rows = lock, key, anchor, rows
        self._process = os.getpid()
        self._threads = threading.RLock()
        self._held: set[int] = set()
        self._reckonings: dict[str, Reckoning] = {}
        self._usable = True
        audit = audit_rows(rows.read(), hospital_id=hospital_id, key=key, anchor=anchor.position)
        if audit.findings or audit.last is None:
            first = audit.findings[0]
            raise LedgerError(
                f"Expected a sound ledger of hospital {hospital_id!r}, found {len(audit.findings)} faults, the first "
                f"at row {first.seq}: {first.text} `aegis ledger verify` lists all. Nothing was released."
            )
        self._balance, self._last = audit.balance, audit.last
        if self._last.seq > anchor.position.seq:
            if anchor.position.seq:
                _LOGGER.warning("The ledger's last call was interrupted at row %d; the row counts.", self._last.seq)
            self._move_anchor(self._last)

    @classmethod
    def open(cls, folder: Path, *, hospital_id: str, key_folder: Path, wait_s: float = _WAIT_S) -> Ledger:
        """Return the hospital's ledger, a new one when there was never one.

        Args:
            folder: the ledger's volume; holds `<hospital_id>.ledger`.
            hospital_id: whose ledger.
            key_folder: another folder, best on another volume; holds `<hospital_id>.key` and `.anchor`, mode 0700.
            wait_s: longest wait for another client, in seconds.

        Raises:
            LedgerError: another client holds it; a file is missing, damaged, changed, foreign or older than the anchor;
                or a volume refused. Nothing is released and no row is lost.
        """
        paths = LedgerPaths.of(folder, hospital_id, key_folder)
        make_folder(folder)
        with ExitStack() as undo:
            lock = ClientLock(paths.lock, wait_s=wait_s)
            undo.callback(lock.release)
            key, anchor, rows = open_files(paths, hospital_id)
            undo.callback(anchor.close)
            undo.callback(rows.close)
            ledger = cls(lock, key, anchor, rows, hospital_id)
            undo.pop_all()
        return ledger

    @property
    def ledger_id(self) -> str:
        """The id that the ledger was born with, 32 hexadecimal digits."""
        return str(self._balance.genesis["ledger"])

    def spend(self, data_set: str, delta: float, *, until: Message | None = None) -> Spend:
        """Return what `data_set` has cost, open and lost reservations included, by all accounts at `delta`.

        Args:
            data_set: its name.
            delta: at which the epsilons hold.
            until: run and message; where they are booked, leave out what was booked after them.

        Raises:
            PrivacyError: delta is not between 0 and 1.
            LedgerError: the ledger is closed, broken, or used in a forked process.
        """
        if not 0 < delta < 1:
            raise PrivacyError(f"Expected 0 < delta={delta} < 1.")
        with self._using():
            known = None if until else self._reckonings.get(data_set)
            return spend_of(data_set, self._balance.tally(data_set, until), delta, known)

    def history(
        self, data_set: str, *, run_id: str | None = None, other_than: str | None = None, before: Message | None = None
    ) -> History:
        """Return the protected releases of `data_set` that count as spent.

        Args:
            data_set: its name.
            run_id: only those of this run; None for all.
            other_than: leave out those of this run; None for none.
            before: run and message; where they are booked, leave out their release and all after it.

        Raises:
            LedgerError: the ledger is closed, broken, or used in a forked process.
        """
        with self._using():
            return self._balance.tally(data_set, before, inclusive=False).history(run_id, other_than=other_than)

    def requests(self, data_set: str, run_id: str) -> list[ReleaseRequest]:
        """Return what was booked for `data_set` under the run `run_id` and not cancelled; raises as `history` does."""
        with self._using():
            return self._balance.requests(data_set, run_id)

    def knows(self, run_id: str, message_id: str) -> bool:
        """Return whether this message is paid for, released or not.

        Raises:
            LedgerError: the ledger is closed, broken, or used in a forked process.
        """
        with self._using():
            return self._balance.find((run_id, message_id)) is not None

    def require_room(self, request: ReleaseRequest) -> None:
        """Accept `request` when it could be reserved now; nothing is written.

        Raises:
            BudgetExhaustedError: it would exceed its cap, or the cap is below what is spent already.
            AlreadyReleasedError: its message was released before.
            LedgerError: its message was booked for another release, or this process is making it right now; or the
                ledger is closed, broken, or used in a forked process.
        """
        with self._using():
            self._admit(request)

    def reserve(self, request: ReleaseRequest) -> Reservation:
        """Pay for `request`; when this returns, the row and its anchor are on the disk.

        A message that a process that died had booked is taken up without a second charge.

        Raises:
            BudgetExhaustedError: it would exceed its cap, or the cap is below what is spent already.
            AlreadyReleasedError: its message was released before.
            LedgerError: as for `require_room`, or a volume refused; the ledger must then be opened again.
        """
        with self._using():
            booking = self._admit(request)
            if booking is None:
                reckoning = self._reckoning(request.data_set)
                row = self._append(Kind.RESERVE, {**request_as_dict(request), **outlook_of(request, reckoning)})
                reckoning.forget(request.event)
                self._held.add(row.seq)
                return Reservation(seq=row.seq, request=request, taken_up=False)
            self._held.add(booking.seq)
            return Reservation(seq=booking.seq, request=booking.request, taken_up=True)

    def commit(self, reservation: Reservation) -> None:
        """Write down that the release may leave; call this before it does, and let nothing leave when it raises.

        Raises:
            LedgerError: the reservation is not held by this ledger, or a volume refused.
        """
        with self._using():
            self._require_held(reservation)
            self._append(Kind.COMMIT, {"reserve": reservation.seq})
            self._held.discard(reservation.seq)

    def cancel(self, reservation: Reservation) -> None:
        """Give the cost back, because nothing was made of the reservation and nothing left.

        A reservation that was taken up from a process that died stays spent: nobody knows what that process did.

        Raises:
            LedgerError: the reservation is not held by this ledger, or a volume refused.
        """
        with self._using():
            booking = self._require_held(reservation)
            if not reservation.taken_up:
                self._append(Kind.CANCEL, {"reserve": reservation.seq})
                self._reckoning(reservation.request.data_set).forget()
            elif booking.standing is Standing.OPEN:
                self._append(Kind.EXPIRE, {"reserve": reservation.seq})
            self._held.discard(reservation.seq)

    def expire_stale(self) -> int:
        """Close the reservations that processes that died left open, and return how many; they stay spent.

        Raises:
            LedgerError: a volume refused, or the ledger is closed, broken, or used in a forked process.
        """
        with self._using():
            for seq in (stale := sorted(self._balance.open_rows() - self._held)):
                self._append(Kind.EXPIRE, {"reserve": seq})
            return len(stale)

    def close(self) -> None:
        """Close the files and let the next client in; a second call does nothing."""
        if os.getpid() != self._process:
            return
        self._usable = False
        with ExitStack() as last:
            last.callback(self._lock.release)
            last.callback(self._anchor.close)
            self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _using(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise LedgerError("Expected the process that opened the ledger, found a forked one: open it there anew.")
        with self._threads:
            if not self._usable:
                raise LedgerError("Expected an open ledger, found it closed or broken off: open it again.")
            yield

    def _admit(self, request: ReleaseRequest) -> Booking | None:
        """Return the booking to take up, or None where a new one fits."""
        booking = self._balance.find(request.message)
        if booking is not None:
            self._require_open(booking, request)
        if request.event is not None:
            reckoning = self._reckoning(request.data_set)
            spent = reckoning.epsilon(request.account, request.delta)
            after = spent if booking else reckoning.epsilon(request.account, request.delta, request.event)
            check_room(request, spent=spent, after=after)
        return booking

    def _require_open(self, booking: Booking, request: ReleaseRequest) -> None:
        if not booking.request.same_release(request):
            raise LedgerError(
                f"Expected for {request.message} the release booked in row {booking.seq}, {booking.request}, found "
                f"{request}: another release needs a message of its own. Nothing was spent."
            )
        if booking.standing is Standing.COMMITTED:
            raise AlreadyReleasedError(
                f"Expected a new message, found {request.message_id!r} of run {request.run_id!r}, which was released "
                f"in row {booking.seq}. Nothing was spent."
            )
        if booking.seq in self._held:
            raise LedgerError(f"Expected one release at a time for {request.message}, found one under way.")

    def _reckoning(self, data_set: str) -> Reckoning:
        tally = self._balance.tallies.setdefault(data_set, self._balance.tally(data_set))
        return self._reckonings.setdefault(data_set, Reckoning(tally))

    def _require_held(self, reservation: Reservation) -> Booking:
        if reservation.seq not in self._held:
            raise LedgerError(
                f"Expected a reservation that this ledger holds, found row {reservation.seq}: it was committed, "
                "cancelled, or made before the ledger was opened."
            )
        return self._balance.bookings[reservation.seq]

    def _append(self, kind: Kind, content: Mapping[str, Any]) -> Row:
        """Write a row and its anchor; unless all of it works, only opening the ledger again tells what is true."""
        row = make_row(self._last.digest, seq=self._last.seq + 1, kind=kind, content=content, key=self._key)
        self._usable = False
        self._rows.append(row)
        self._move_anchor(row)
        self._balance.apply(row)
        self._last = row
        self._usable = True
        return row

    def _move_anchor(self, row: Row) -> None:
        ledger_id = bytes.fromhex(self.ledger_id)
        self._anchor.write(Position(ledger_id=ledger_id, seq=row.seq, digest=row.digest))
