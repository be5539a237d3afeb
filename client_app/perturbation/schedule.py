"""How much noise the next release needs: planned once for all releases, or again for what is left of the budget.

Both mechanisms ask here; they differ only in the event that a release causes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from federation.accounting.accounts import ACCOUNTS, Account
from federation.accounting.events import Event, History
from federation.accounting.gaussian import analytic_noise_multiplier, classic_noise_multiplier
from federation.accounting.inversion import smallest_noise_multiplier
from federation.config import PrivacyConfig
from federation.errors import BudgetExhaustedError, PrivacyError

MakeEvent = Callable[[float], Event]


def plan_noise_multiplier(
    privacy: PrivacyConfig,
    make_event: MakeEvent,
    *,
    spent: History,
    released: int,
    planned: int,
    cap: float,
    delta: float,
    account: Account,
) -> float:
    """Return the noise multiplier of the next release.

    The first of these that `privacy` sets decides: `noise_multiplier` as it stands; `release_epsilon`, by the analytic
    or the classic formula; `schedule = "constant"`, the smallest multiplier with which `planned` releases stay within
    `cap` when nothing was spent before; `schedule = "remaining"`, the smallest with which the `planned - released`
    that are left do on top of `spent`.

    Guarantee: under "remaining", `spent` and all releases that are left, each with the returned multiplier, cost at
    most `cap` by `account`; under "constant", `planned` releases from the start do. The choice depends on events
    alone, never on data or on what was released, so composition that is not adaptive accounts for it.

    Not guaranteed: that the next release fits the cap. With a multiplier or an epsilon per release set by hand, or
    after earlier runs on the same data under "constant", it may not; the ledger refuses it then.

    Args:
        privacy: what is asked for.
        make_event: the event of one release with a given noise multiplier, which is all it may depend on.
        spent: everything released from this data set so far.
        released: releases of this run among them.
        planned: releases of this run in all, at least 1.
        cap: epsilon that may be spent: the stricter of the server's wish and the hospital's policy.
        delta: of that epsilon.
        account: which binds.

    Raises:
        BudgetExhaustedError: all planned releases were made, or `spent` leaves nothing to plan with.
        PrivacyError: a formula does not hold for what was asked, or no noise would be enough.
    """
    if privacy.noise_multiplier:
        return privacy.noise_multiplier
    if privacy.release_epsilon:
        formula = classic_noise_multiplier if privacy.calibration == "classic" else analytic_noise_multiplier
        return formula(privacy.release_epsilon, delta)
    left = planned - released
    if left < 1:
        raise BudgetExhaustedError(
            f"Expected released={released} < planned={planned}: the plan for epsilon is used up."
        )
    if privacy.schedule == "constant":
        return _plan_from_the_start(make_event(1.0), planned, cap, delta, account.name)
    if (gone := account.epsilon(spent, delta)) >= cap:
        raise BudgetExhaustedError(f"Expected less than the cap {cap:.6g} spent, found epsilon {gone:.6g}.")
    try:
        return smallest_noise_multiplier(
            make_event, releases=left, epsilon=cap, delta=delta, account=account, spent=spent
        )
    except PrivacyError as error:
        raise BudgetExhaustedError(f"Expected room for {left} releases after epsilon {gone:.6g}: {error}") from error


@lru_cache(maxsize=256)
def _plan_from_the_start(pattern: Event, planned: int, cap: float, delta: float, account_name: str) -> float:
    """Return the constant plan, found once per process: every release asks for the same one."""
    return smallest_noise_multiplier(
        lambda noise_multiplier: replace(pattern, noise_multiplier=noise_multiplier),
        releases=planned,
        epsilon=cap,
        delta=delta,
        account=ACCOUNTS[account_name],
    )
