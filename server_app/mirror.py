"""The server's mirror of every hospital's privacy ledger: it believes nothing, and pauses who has nothing left.

The hospital's own ledger decides; the mirror only follows. It recomputes epsilon from the declared events, refuses an
answer whose claims contradict them or the plan, and stops asking a hospital whose budget has no room. It is independent
of aggregation: what was declared is spent, whether or not the update is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from federation.accounting.accounts import account_of
from federation.accounting.events import Event, GaussianRelease, SampledGaussianRelease
from federation.config import Configuration
from federation.errors import PrivacyError, RefusalCode, RefusalError
from federation.records.declarations import Declaration
from server_app.progress import Progress
from server_app.spending import Spending

TRAINING = "training"
_TOLERANCE = 1e-6


class LedgerMirror:
    """Follows what hospitals declare; its state is part of the progress and so of every checkpoint."""

    def __init__(self, configuration: Configuration, progress: Progress) -> None:
        """Mirror the ledgers of a run with `configuration` into `progress`."""
        self._settings = configuration
        self._privacy = configuration.privacy
        self._progress = progress

    def book(self, hospital_id: str, declaration: Declaration | None, *, examples: int, split: str = TRAINING) -> None:
        """Take over what a hospital declared about one answer, and pause it if nothing is left.

        Args:
            hospital_id: who answers.
            declaration: what it says; None where it claims no protection.
            examples: images it says it used.
            split: "training", or the split that was scored.

        Raises:
            RefusalError: the declaration is weaker than the plan, or contradicts itself or what was declared before;
                the mirror then only counts it.
        """
        spending = self._progress.spending_of(hospital_id, split)
        try:
            self._require_protection(declaration, split)
            if declaration is not None:
                self._require_plan(declaration, examples, split)
                self._require_consistency(declaration, spending)
        except RefusalError:
            spending.refused += 1
            raise
        if declaration is None:
            spending.uncovered += 1
            return
        _take_over(spending, declaration)
        if split == TRAINING:
            spending.paused = not self._has_room(declaration, spending)

    def pause(self, hospital_id: str) -> None:
        """Ask `hospital_id` for no more updates: it says that its budget is spent."""
        self._progress.spending_of(hospital_id, TRAINING).paused = True

    def is_paused(self, hospital_id: str) -> bool:
        """Return whether `hospital_id` has no budget left for another update."""
        mine = self._progress.spending.get(hospital_id, {}).get(TRAINING)
        return mine is not None and mine.paused

    def unpaused(self, hospital_ids: Iterable[str]) -> list[str]:
        """Return those of `hospital_ids` that can be asked for another update, in their order."""
        return [name for name in hospital_ids if not self.is_paused(name)]

    def _require_protection(self, declaration: Declaration | None, split: str) -> None:
        asked = self._privacy.mechanism
        expected = asked if split == TRAINING or asked == "none" else "metrics"
        found = "none" if declaration is None else declaration.mechanism
        if found != expected:
            raise RefusalError(RefusalCode.PRIVACY_MISMATCH, f"Expected mechanism {expected!r}, found {found!r}.")

    def _require_plan(self, declaration: Declaration, examples: int, split: str) -> None:
        """Check that the declared mechanism is the planned one or stricter."""
        if declaration.delta > self._privacy.delta:
            raise _mismatch(f"delta <= {self._privacy.delta:g}", f"{declaration.delta:g}")
        if split != TRAINING:
            _require_kind(declaration.event, GaussianRelease)
            return
        if declaration.clip_norm != self._privacy.clip_norm:
            raise _mismatch(f"clip norm {self._privacy.clip_norm:g}", f"{declaration.clip_norm:g}")
        least = self._privacy.noise_multiplier
        if declaration.event.noise_multiplier < least:
            raise _mismatch(f"noise multiplier >= {least:g}", f"{declaration.event.noise_multiplier:g}")
        if self._privacy.mechanism == "update-gaussian":
            _require_kind(declaration.event, GaussianRelease)
            if declaration.relation.value != self._privacy.relation:
                raise _mismatch(f"relation {self._privacy.relation}", declaration.relation.value)
        else:
            self._require_sampling(declaration, examples)

    def _require_sampling(self, declaration: Declaration, examples: int) -> None:
        """Check that DP-SGD sampled as planned: with fewer units than images the probability may only be higher."""
        event, training = declaration.event, self._settings.training
        if not isinstance(event, SampledGaussianRelease):
            raise _mismatch("an event of DP-SGD", type(event).__name__)
        if declaration.unit.value != self._privacy.unit:
            raise _mismatch(f"unit {self._privacy.unit}", declaration.unit.value)
        least = min(1.0, training.batch_size / examples)
        if event.sampling_probability < least * (1 - _TOLERANCE):
            raise _mismatch(f"sampling probability >= {least:.6g}", f"{event.sampling_probability:.6g}")
        if event.steps < training.local_epochs:
            raise _mismatch(f"steps >= {training.local_epochs}", str(event.steps))

    def _require_consistency(self, declaration: Declaration, spending: Spending) -> None:
        """Check the hospital's totals against its own events and its earlier totals."""
        own = _epsilon(declaration, spending)
        if declaration.spent < own * (1 - _TOLERANCE):
            raise _contradiction(f"spent >= {own:.6g}, which the declared events cost", f"{declaration.spent:.6g}")
        if declaration.spent > declaration.cap * (1 + _TOLERANCE):
            raise _contradiction(f"spent <= its cap {declaration.cap:.6g}", f"{declaration.spent:.6g}")
        known = sum(booked.count for booked in spending.events)
        if declaration.releases < max(known, spending.releases) + 1:
            raise _contradiction(
                f"more than the {max(known, spending.releases)} releases known", str(declaration.releases)
            )
        same = (declaration.delta, declaration.account) == (spending.delta, spending.account)
        if same and spending.spent is not None and declaration.spent < spending.spent * (1 - _TOLERANCE):
            raise _contradiction(f"spent >= {spending.spent:.6g} as before", f"{declaration.spent:.6g}")
        if declaration.uncovered < spending.uncovered:
            raise _contradiction(f"{spending.uncovered} uncovered releases", str(declaration.uncovered))

    def _has_room(self, declaration: Declaration, spending: Spending) -> bool:
        """Return whether the same release once more stays within the run's budget and the hospital's cap."""
        once_more = account_of(declaration.account).epsilon(spending.history.plus(declaration.event), declaration.delta)
        return once_more <= min(declaration.cap, self._privacy.epsilon) * (1 + _TOLERANCE)


def _take_over(spending: Spending, declaration: Declaration) -> None:
    spending.book(declaration.event)
    spending.mechanism = declaration.mechanism
    spending.relation = declaration.relation.value
    spending.unit = declaration.unit.value
    spending.delta = declaration.delta
    spending.account = declaration.account
    spending.spent = declaration.spent
    spending.cap = declaration.cap
    spending.releases = declaration.releases
    spending.uncovered = declaration.uncovered


def _epsilon(declaration: Declaration, spending: Spending) -> float:
    """Return what everything declared in this run costs by the hospital's own account, this answer included."""
    try:
        epsilon = account_of(declaration.account).epsilon(spending.history.plus(declaration.event), declaration.delta)
    except PrivacyError as error:
        raise RefusalError(RefusalCode.BUDGET_CONTRADICTION, f"The declared event has no epsilon: {error}") from None
    return epsilon if math.isfinite(epsilon) else math.inf


def _require_kind(event: Event, kind: type[Event]) -> None:
    if not isinstance(event, kind):
        raise _mismatch(f"a {kind.__name__}", type(event).__name__)


def _mismatch(expected: str, found: str) -> RefusalError:
    return RefusalError(RefusalCode.PRIVACY_MISMATCH, f"Expected {expected}, found {found}.")


def _contradiction(expected: str, found: str) -> RefusalError:
    return RefusalError(RefusalCode.BUDGET_CONTRADICTION, f"Expected {expected}, found {found}.")
