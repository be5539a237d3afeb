"""A ledger's numbers as words: spent is rounded up and left down, and where no epsilon holds, that is said."""

from __future__ import annotations

from dataclasses import dataclass

from client_app.ledger.balance import Standing
from client_app.ledger.release import ACCOUNT_NAMES
from deploy.status_page.forecast import foresee, tell
from deploy.status_page.spending import Account
from deploy.web.words import count, no_less, no_more

_NAMES = {"linear": "linear", "rdp": "RDP", "pld": "PLD"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """One data set at one delta.

    Attributes:
        data_set: its name.
        counted: by which account and at which delta.
        spent: epsilon by the account that binds.
        cap: of the newest run.
        left: of that cap.
        share: spent of the cap, from 0 to 1; None where there is neither.
        releases: how many, and what became of them.
        by_account: epsilon by each of the three accounts.
        forecast: how long it will last; empty where nobody can say.
        warning: why no epsilon holds; empty where one does.
    """

    data_set: str
    counted: str
    spent: str
    cap: str
    left: str
    share: float | None
    releases: str
    by_account: str
    forecast: str
    warning: str


def view_account(account: Account, now: float) -> AccountView:
    """Return what the page says of `account` at `now`."""
    line = account.line
    latest, spend = line.latest, line.spend
    releases = _releases(line.standings)
    if latest is None or spend is None:
        return AccountView(
            data_set=line.data_set,
            counted="no mechanism",
            spent="-",
            cap="-",
            left="-",
            share=None,
            releases=releases,
            by_account="",
            forecast="",
            warning=_warning(line.unprotected),
        )
    spent = spend.epsilon(latest.account)
    each = [f"{_NAMES[name]} {no_less(spend.epsilon(name))}" for name in ACCOUNT_NAMES]
    return AccountView(
        data_set=line.data_set,
        counted=f"{_NAMES[latest.account]} account at delta {latest.delta:g}",
        spent=no_less(spent),
        cap=f"{latest.cap:g}",
        left=no_more(line.left or 0.0),
        share=min(1.0, spent / latest.cap),
        releases=releases,
        by_account=", ".join(each),
        forecast="" if account.more is None else tell(foresee(account.more, account.times, now), now),
        warning="" if spend.claimable else _warning(line.unprotected),
    )


def _releases(standings: dict[Standing, int]) -> str:
    kept = {name: number for name, number in standings.items() if name is not Standing.CANCELLED}
    others = [f"{number} {name.value}" for name, number in kept.items() if number and name is not Standing.COMMITTED]
    return str(sum(kept.values())) + (f", of them {', '.join(others)}" if others else "")


def _warning(unprotected: int) -> str:
    if unprotected:
        return f"No epsilon holds: {count(unprotected, 'update')} left without protection."
    return "No epsilon holds: mechanisms that protect different units were used."
