"""The one way out of a hospital: reserve in the ledger, form the answer, commit, and only then let go of it.

A crash before the commit leaves the reservation spent and nothing released; no crash leaves anything released without
its entry. Read next: `client_app.ledger`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from client_app.ledger import Ledger, ReleaseRequest
from client_app.ledger.release import NO_MASKING
from client_app.site import ReleaseKey, Site
from federation.accounting.accounts import account_of
from federation.accounting.events import Event, History, Relation, Unit
from federation.accounting.mechanism import Mechanism
from federation.errors import AlreadyReleasedError, BudgetExhaustedError
from federation.records.declarations import Declaration

_Answer = TypeVar("_Answer")

_NO_MECHANISM = Mechanism(name="none", relation=Relation.ADD_REMOVE, unit=Unit.UPDATE, clip_norm=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one answer costs.

    Attributes:
        data_set: the name under which the data stand in the ledger.
        mechanism: how the answer is protected.
        event: what is released; None for an answer without protection.
        delta: at which epsilon is counted.
        cap: the most epsilon over everything ever released from the data set.
        budget: the most epsilon over this run's releases from it; at a deployed hospital a resumed run counts anew.
        account: the account that binds.
        masking: what the answer was masked with, as the ledger writes it down.
    """

    data_set: str
    mechanism: Mechanism
    event: Event | None
    delta: float
    cap: float
    budget: float
    account: str
    masking: str = NO_MASKING


def unprotected(data_set: str) -> Bill:
    """Return the bill of an answer without protection: booked, so that no epsilon is claimed for the data later."""
    return Bill(
        data_set=data_set, mechanism=_NO_MECHANISM, event=None, delta=0.5, cap=1.0, budget=1.0, account="linear"
    )


def open_ledger(site: Site) -> Ledger:
    """Return the hospital's ledger, held until it is closed; what a client that died left open is closed as spent.

    Raises:
        LedgerError: it cannot be used.
    """
    with ExitStack() as undo:
        ledger = Ledger.open(site.state_dir, hospital_id=site.hospital_id, key_folder=site.keys_dir)
        undo.callback(ledger.close)
        ledger.expire_stale()
        undo.pop_all()
    return ledger


def read_histories(ledger: Ledger, key: ReleaseKey, data_set: str) -> tuple[History, History]:
    """Return what earlier runs released from `data_set`, and what this run released before the task of `key`.

    A task that is asked again is planned as it was the first time, whatever was released since. To a deployed hospital
    a resumed run is another one, and what was released before the resumption is that of an earlier run.

    Raises:
        LedgerError: the ledger cannot be used.
    """
    asked = (key.run, key.message)
    before = ledger.history(data_set, other_than=key.run, before=asked)
    return before, ledger.history(data_set, run_id=key.run, before=asked)


def require_room(site: Site, ledger: Ledger, key: ReleaseKey, bill: Bill) -> None:
    """Check before any work that the answer can be paid for.

    Raises:
        BudgetExhaustedError: it cannot; nothing was spent.
        AlreadyReleasedError: the task was answered before.
        LedgerError: the ledger cannot be used.
    """
    _require_budget(ledger, key, bill)
    try:
        ledger.require_room(request_of(key, bill))
    except AlreadyReleasedError:
        if not site.answers_twice:
            raise


def release(site: Site, key: ReleaseKey, bill: Bill, form: Callable[[Declaration | None], _Answer]) -> _Answer:
    """Return the answer that `form` makes of its declaration, after its cost has become durable.

    Guarantee: when this returns, the ledger holds the committed entry of this answer on disk; when it raises, nothing
    was released, and what was reserved has been given back or, after a crash, stays spent.
    Not guaranteed: that the answer arrives; it stays spent all the same.

    Args:
        site: whose ledger.
        key: of the task; at a deployed hospital no task is answered twice.
        bill: what the answer costs.
        form: adds the noise and encodes the answer; called once, between reserve and commit.

    Raises:
        BudgetExhaustedError: the answer cannot be paid for; nothing was spent.
        LedgerError: the ledger cannot be used, or the task was answered before.
    """
    with open_ledger(site) as ledger:
        _require_budget(ledger, key, bill)
        try:
            reservation = ledger.reserve(request_of(key, bill))
        except AlreadyReleasedError:
            if not site.answers_twice:
                raise
            return form(_declare(ledger, bill, until=(key.run, key.message)))
        with ExitStack() as undo:
            undo.callback(ledger.cancel, reservation)
            answer = form(_declare(ledger, bill))
            undo.pop_all()
        ledger.commit(reservation)
        return answer


def request_of(key: ReleaseKey, bill: Bill) -> ReleaseRequest:
    """Return what the ledger is asked for: to book `bill` under `key`."""
    return ReleaseRequest(
        run_id=key.run,
        message_id=key.message,
        data_set=bill.data_set,
        mechanism=bill.mechanism,
        event=bill.event,
        delta=bill.delta,
        cap=bill.cap,
        account=bill.account,
        masking=bill.masking,
    )


def bill_of(request: ReleaseRequest, budget: float) -> Bill:
    """Return the bill that `request` books, for a run with `budget`."""
    return Bill(
        data_set=request.data_set,
        mechanism=request.mechanism,
        event=request.event,
        delta=request.delta,
        cap=request.cap,
        budget=budget,
        account=request.account,
        masking=request.masking,
    )


def _require_budget(ledger: Ledger, key: ReleaseKey, bill: Bill) -> None:
    """Check the run's own budget, which is never above the cap; the ledger itself checks the cap."""
    if bill.event is None or ledger.knows(key.run, key.message):
        return
    asked = ledger.history(bill.data_set, run_id=key.run).plus(bill.event)
    if (epsilon := account_of(bill.account).epsilon(asked, bill.delta)) > bill.budget:
        raise BudgetExhaustedError(f"Expected this run's epsilon={epsilon:.6g} <= {bill.budget:g} after this release.")


def _declare(ledger: Ledger, bill: Bill, *, until: tuple[str, str] | None = None) -> Declaration | None:
    """Return what the server is told, releases that its epsilon does not cover among it.

    Args:
        ledger: which holds the entry of the answer.
        bill: what the answer costs.
        until: run and message of an answer that was given before; it is declared as it was then.
    """
    if bill.event is None:
        return None
    spend = ledger.spend(bill.data_set, bill.delta, until=until)
    return Declaration(
        mechanism=bill.mechanism.name,
        relation=bill.mechanism.relation,
        unit=bill.mechanism.unit,
        clip_norm=bill.mechanism.clip_norm,
        event=bill.event,
        delta=bill.delta,
        account=bill.account,
        spent=spend.epsilon(bill.account),
        cap=bill.cap,
        releases=spend.releases,
        uncovered=spend.unprotected if len(spend.protections) <= 1 else spend.releases,
    )
