"""What a data set has cost and would cost: epsilons of a tally, remembered until the tally changes."""

from __future__ import annotations

import math
from typing import Any

from client_app.ledger.balance import Standing, Tally
from client_app.ledger.release import ACCOUNT_NAMES, ReleaseRequest, Spend
from federation.accounting.accounts import account_of
from federation.accounting.events import Event
from federation.errors import BudgetExhaustedError


class Reckoning:
    """Epsilons of one data set, each computed once for the same history."""

    def __init__(self, tally: Tally) -> None:
        """Reckon with `tally`, which the caller keeps changing; `forget` must follow each change."""
        self.tally = tally
        self._known: dict[tuple[str, float, Event | None], float] = {}

    def epsilon(self, account: str, delta: float, event: Event | None = None) -> float:
        """Return the epsilon of the protected releases, and of one more release of `event` when it is given."""
        asked = (account, delta, event)
        if asked not in self._known:
            history = self.tally.history()
            if event is not None:
                history = history.plus(event)
            self._known[asked] = account_of(account).epsilon(history, delta) if history.counts else 0.0
        return self._known[asked]

    def forget(self, charged: Event | None = None) -> None:
        """Drop what no longer holds; what was known of one more release of `charged` is now known of the present."""
        known = self._known.items() if charged is not None else ()
        self._known = {(name, delta, None): value for (name, delta, event), value in known if event == charged}


def spend_of(data_set: str, tally: Tally, delta: float, reckoning: Reckoning | None = None) -> Spend:
    """Return the spend of `data_set` at `delta`.

    Args:
        data_set: its name.
        tally: its bookings.
        delta: at which epsilons are computed, between 0 and 1.
        reckoning: remembers epsilons; None computes them anew.
    """
    known = reckoning or Reckoning(tally)
    return Spend(
        data_set=data_set,
        delta=delta,
        history=tally.history(),
        releases=tally.releases,
        unprotected=tally.unprotected,
        committed=tally.standings[Standing.COMMITTED],
        lost=tally.standings[Standing.LOST],
        protections=tuple(sorted(tally.protections)),
        **{name: known.epsilon(name, delta) for name in ACCOUNT_NAMES},
    )


def outlook_of(request: ReleaseRequest, reckoning: Reckoning) -> dict[str, Any]:
    """Return what `request` would bring its data set to, as a row shows it.

    An epsilon is null where no account bounds it, and all are after an unprotected release.
    """
    unprotected = reckoning.tally.unprotected + (request.event is None)
    after: dict[str, float | None] = dict.fromkeys(ACCOUNT_NAMES)
    if not unprotected:
        values = {name: reckoning.epsilon(name, request.delta, request.event) for name in ACCOUNT_NAMES}
        after = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return {"after": after, "unprotected": unprotected}


def check_room(request: ReleaseRequest, *, spent: float, after: float) -> None:
    """Accept `request` when everything spent on its data set stays within its cap.

    Args:
        request: a protected release.
        spent: epsilon before it, by the account it names.
        after: epsilon after it; the same as `spent` for a booking that is taken up.

    Raises:
        BudgetExhaustedError: it does not fit.
    """
    if after <= request.cap and spent <= request.cap:
        return
    raise BudgetExhaustedError(
        f"Expected spent={spent:.6g} + asked={after - spent:.6g} <= cap={request.cap:g} for the data set "
        f"{request.data_set!r} (epsilon by {request.account} at delta {request.delta:g}). Nothing was spent."
    )
