"""The server's mirror of every hospital's privacy ledger: it believes nothing, and pauses who has nothing left.

The hospital's own ledger decides; the mirror only follows. It recomputes epsilon from the declared events, refuses an
answer whose claims contradict them or the plan, and stops asking a hospital whose budget has no room. It is independent
of aggregation: what was declared is spent, whether or not the update is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from federation.accounting.accounts import account_of
from federation.accounting.events import GaussianRelease, History, Relation, SampledGaussianRelease, Unit
from federation.accounting.gaussian import analytic_noise_multiplier
from federation.accounting.mechanism import METRICS, Mechanism
from federation.accounting.sampling_plan import plan_sampling
from federation.config import Configuration
from federation.errors import PrivacyError, RefusalCode, RefusalError
from federation.records.declarations import Declaration
from server_app.progress import Progress
from server_app.spending import Spending

TRAINING = "training"
_TOLERANCE = 1e-6

# A cap counts as reached within the precision to which noise is derived from it.
_REACHED = 1e-4


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
        """Check that the answer is protected exactly where a mechanism was asked for."""
        asked = self._planned_mechanism(split)
        expected = "none" if asked is None else asked.name
        found = "none" if declaration is None else declaration.mechanism
        if found != expected or (asked is None) != (declaration is None):
            raise RefusalError(RefusalCode.PRIVACY_MISMATCH, f"Expected mechanism {expected!r}, found {found!r}.")

    def _planned_mechanism(self, split: str) -> Mechanism | None:
        privacy = self._privacy
        if privacy.mechanism == "none":
            return None
        if split != TRAINING:
            return METRICS
        if privacy.mechanism == "dp-sgd":
            relation, unit = Relation.ADD_REMOVE, Unit(privacy.unit)
        else:
            relation, unit = Relation(privacy.relation), Unit.UPDATE
        return Mechanism(name=privacy.mechanism, relation=relation, unit=unit, clip_norm=privacy.clip_norm)

    def _require_plan(self, declaration: Declaration, examples: int, split: str) -> None:
        """Check that the declared mechanism is the planned one, and its noise the planned noise or more."""
        planned = self._planned_mechanism(split)
        for field in ("relation", "unit", "clip_norm"):
            asked, found = getattr(planned, field), getattr(declaration, field)
            if found != asked:
                raise _mismatch(f"{field.replace('_', ' ')} {asked}", f"{found}")
        if declaration.delta > self._privacy.delta:
            raise _mismatch(f"delta <= {self._privacy.delta:g}", f"{declaration.delta:g}")
        least = self._least_noise(declaration.delta, split)
        if declaration.event.noise_multiplier < least:
            raise _mismatch(f"noise multiplier >= {least:g}", f"{declaration.event.noise_multiplier:g}")
        if declaration.mechanism == "dp-sgd":
            self._require_sampling(declaration, examples)
        elif not isinstance(declaration.event, GaussianRelease):
            raise _mismatch("a GaussianRelease", type(declaration.event).__name__)

    def _least_noise(self, delta: float, split: str) -> float:
        """Return the noise multiplier that the plan names; 0 where it follows from the budget, which is checked."""
        privacy = self._privacy
        if split != TRAINING:
            return privacy.evaluation_noise_multiplier
        if privacy.release_epsilon:
            return analytic_noise_multiplier(privacy.release_epsilon, delta) * (1 - _TOLERANCE)
        return privacy.noise_multiplier

    def _require_sampling(self, declaration: Declaration, examples: int) -> None:
        """Check that DP-SGD sampled as planned.

        What is planned follows from the number of units: every image is one, or some number of patients up to that of
        the images, which the declared probability tells.
        """
        event, training = declaration.event, self._settings.training
        if not isinstance(event, SampledGaussianRelease):
            raise _mismatch("a SampledGaussianRelease", type(event).__name__)
        units = examples
        if declaration.unit is Unit.PATIENT:
            units = max(1, round(min(examples, training.batch_size / event.sampling_probability)))
        probability, steps = plan_sampling(units, batch_size=training.batch_size, local_epochs=training.local_epochs)
        if not math.isclose(event.sampling_probability, probability, rel_tol=_TOLERANCE):
            raise _mismatch(f"sampling probability {probability:.6g}", f"{event.sampling_probability:.6g}")
        if event.steps != steps:
            raise _mismatch(f"steps {steps}", str(event.steps))

    def _require_consistency(self, declaration: Declaration, spending: Spending) -> None:
        """Check the hospital's totals against its own events and its earlier totals."""
        own = _epsilon(declaration, spending)
        if declaration.spent < own * (1 - _TOLERANCE):
            raise _contradiction(f"spent >= {own:.6g}, which the declared events cost", f"{declaration.spent:.6g}")
        if own > self._privacy.epsilon * (1 + _TOLERANCE):
            raise _contradiction(f"at most epsilon {self._privacy.epsilon:g} in this run", f"events of {own:.6g}")
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
        """Return whether the same release once more stays within the run's budget and the hospital's cap.

        What earlier runs released is known by its total only. The linear account adds to it; by the others a total
        says no more than that nothing is left where the cap is reached, which the hospital then says itself.
        """
        account, event, delta = account_of(declaration.account), declaration.event, declaration.delta
        once_more = account.epsilon(spending.history.plus(event), delta)
        if once_more > min(declaration.cap, self._privacy.epsilon) * (1 + _TOLERANCE):
            return False
        if declaration.account == "linear":
            return declaration.spent + account.epsilon(History.of([event]), delta) <= declaration.cap * (1 + _TOLERANCE)
        return declaration.spent < declaration.cap * (1 - _REACHED)


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


def _mismatch(expected: str, found: str) -> RefusalError:
    return RefusalError(RefusalCode.PRIVACY_MISMATCH, f"Expected {expected}, found {found}.")


def _contradiction(expected: str, found: str) -> RefusalError:
    return RefusalError(RefusalCode.BUDGET_CONTRADICTION, f"Expected {expected}, found {found}.")
