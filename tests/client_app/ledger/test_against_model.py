"""Random reservations, commits, cancellations, crashes and restored backups against a plain model of the spending."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client_app.ledger import Ledger, Reservation
from federation.accounting.events import History
from federation.errors import AlreadyReleasedError, BudgetExhaustedError, LedgerError
from tests.client_app.ledger.place import FIFTH, Place, request

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
MESSAGES = st.sampled_from([f"m{number}" for number in range(8)])


class LedgerMachine(RuleBasedStateMachine):
    """The model: how each message stands, and which reservations this client holds."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=MEMORY))
        self.generation = 0
        self.standing: dict[str, str] = {}
        self.held: dict[str, Reservation] = {}
        self.rows = 1
        self.backup: tuple[Path, int] | None = None
        self.ledger: Ledger | None = None

    @property
    def place(self) -> Place:
        return Place(self.root / str(self.generation))

    @property
    def open_ledger(self) -> Ledger:
        assert self.ledger is not None
        return self.ledger

    @initialize()
    def begin(self) -> None:
        self.ledger = self.place.open()

    @rule(message=MESSAGES, fifths=st.integers(0, 9))
    def reserve(self, message: str, fifths: int) -> None:
        asked = request(message, cap=0.2 * fifths + 0.1)
        charged = message in self.standing
        if self.standing.get(message) == "committed":
            with pytest.raises(AlreadyReleasedError):
                self.open_ledger.reserve(asked)
        elif message in self.held:
            with pytest.raises(LedgerError, match="one under way"):
                self.open_ledger.reserve(asked)
        elif len(self.standing) + (not charged) > fifths:
            with pytest.raises(BudgetExhaustedError):
                self.open_ledger.reserve(asked)
        else:
            reservation = self.open_ledger.reserve(asked)
            assert reservation.taken_up == charged
            self.rows += not charged
            self.standing.setdefault(message, "open")
            self.held[message] = reservation

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(sorted(self.held)))
        self.open_ledger.commit(self.held.pop(message))
        self.standing[message] = "committed"
        self.rows += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(sorted(self.held)))
        reservation = self.held.pop(message)
        self.open_ledger.cancel(reservation)
        if not reservation.taken_up:
            del self.standing[message]
            self.rows += 1
        elif self.standing[message] == "open":
            self.standing[message] = "lost"
            self.rows += 1

    @rule()
    def expire(self) -> None:
        stale = [name for name, state in self.standing.items() if state == "open" and name not in self.held]
        assert self.open_ledger.expire_stale() == len(stale)
        self.standing.update(dict.fromkeys(stale, "lost"))
        self.rows += len(stale)

    @rule()
    def crash(self) -> None:
        """Go on with what is on the disk at this moment, without the client having closed anything."""
        before = self.place
        self.generation += 1
        shutil.copytree(before.root, self.place.root)
        self.open_ledger.close()
        self.ledger = self.place.open()
        self.held.clear()

    @rule()
    def reopen(self) -> None:
        self.open_ledger.close()
        self.ledger = self.place.open()
        self.held.clear()

    @rule()
    def back_up(self) -> None:
        self.open_ledger.close()
        copy = self.root / f"backup-{self.generation}-{self.rows}"
        shutil.rmtree(copy, ignore_errors=True)
        self.backup = Path(shutil.copytree(self.place.folder, copy)), self.rows
        self.ledger = self.place.open()
        self.held.clear()

    @precondition(lambda self: self.backup is not None)
    @rule()
    def restore_and_undo(self) -> None:
        assert self.backup is not None
        copy, rows = self.backup
        self.open_ledger.close()
        newest = self.root / "newest"
        shutil.rmtree(newest, ignore_errors=True)
        shutil.move(self.place.folder, newest)
        shutil.copytree(copy, self.place.folder)
        if rows < self.rows:
            with pytest.raises(LedgerError, match="an old copy of the ledger was restored"):
                self.place.open()
        else:
            self.place.open().close()
        shutil.rmtree(self.place.folder)
        shutil.move(newest, self.place.folder)
        self.ledger = self.place.open()
        self.held.clear()

    @invariant()
    def spending_is_that_of_the_model(self) -> None:
        if self.ledger is None:
            return
        spend = self.ledger.spend("scans", 1e-5)
        assert spend.history == History.of([FIFTH] * len(self.standing))
        assert spend.linear == pytest.approx(0.2 * len(self.standing), rel=1e-3)
        assert spend.committed == list(self.standing.values()).count("committed")
        assert spend.lost == list(self.standing.values()).count("lost")
        assert all(self.ledger.knows("run", message) for message in self.standing)

    def teardown(self) -> None:
        if self.ledger is not None:
            self.ledger.close()
            assert len(self.place.raw_rows()) == self.rows
        shutil.rmtree(self.root)


TestLedgerAgainstModel = LedgerMachine.TestCase
TestLedgerAgainstModel.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
