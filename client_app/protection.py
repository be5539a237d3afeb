"""How the next update of this hospital is protected: mechanism and noise, the stricter of policy and request.

Everything here depends on the request, the policy, the ledger's events and the number of protected units: never on
what the data hold. Read next: `client_app.releasing`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from client_app.granting import Grant, grant_release, require_unit
from client_app.perturbation.schedule import plan_noise_multiplier
from client_app.policy import SitePolicy
from federation.accounting.accounts import account_of
from federation.accounting.events import Event, GaussianRelease, History, Relation, Unit
from federation.accounting.inversion import smallest_noise_multiplier
from federation.accounting.mechanism import Mechanism
from federation.config import Configuration, TrainingConfig
from federation.datasets.image_set import ImageSet
from federation.errors import BudgetExhaustedError, PrivacyError

_LOGGER = logging.getLogger("aegis.client")

MakeEvent = Callable[[float], Event]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """The mechanism of one update.

    Attributes:
        mechanism: with its neighbouring relation, unit and clip norm.
        event: what releasing the update will cause.
        noise_multiplier: standard deviation of its noise over the sensitivity.
        grant: cap, delta and account.
    """

    mechanism: Mechanism
    event: Event
    noise_multiplier: float
    grant: Grant


def plan_protection(
    configuration: Configuration,
    plan: TrainingConfig,
    images: ImageSet,
    *,
    policy: SitePolicy | None,
    before: History,
    during: History,
) -> Protection:
    """Return the protection of the next update under a mechanism other than "none".

    Args:
        configuration: what the server asks for.
        plan: how it asks to train.
        images: the training split, of which only the number of images and patients counts.
        policy: the hospital's own; None grants what is asked.
        before: what earlier runs released from the data set.
        during: what this run released from it so far.

    Raises:
        SiteError: the policy does not allow the mechanism.
        BudgetExhaustedError: the run's planned releases were made, or nothing is left to plan with.
        PrivacyError: no noise is enough, or a formula does not hold for what was asked.
    """
    privacy = configuration.privacy
    require_unit(policy, privacy, knows_patients=images.patients is not None)
    grant = grant_release(policy, privacy)
    mechanism, make_event = _mechanism(configuration, plan, images)
    warn_of_large_delta(grant.delta, _count_protected(images, mechanism.unit))
    planned = privacy.releases or configuration.aggregation.rounds
    account = account_of(grant.account)
    asked = plan_noise_multiplier(
        privacy,
        make_event,
        spent=during,
        released=during.releases,
        planned=planned,
        cap=grant.budget,
        delta=grant.delta,
        account=account,
    )
    multiplier = max(asked, grant.min_noise_multiplier, *_bounds(configuration, grant, make_event(1.0), before))
    return Protection(mechanism=mechanism, event=make_event(multiplier), noise_multiplier=multiplier, grant=grant)


def _mechanism(configuration: Configuration, plan: TrainingConfig, images: ImageSet) -> tuple[Mechanism, MakeEvent]:
    privacy = configuration.privacy
    if privacy.mechanism == "dp-sgd":
        from client_app.dp_sgd import count_units, dp_sgd_event

        units = count_units(images, privacy)
        unit = Unit(privacy.unit)
        mechanism = Mechanism(name="dp-sgd", relation=Relation.ADD_REMOVE, unit=unit, clip_norm=privacy.clip_norm)
        return mechanism, lambda multiplier: dp_sgd_event(units, plan, privacy, multiplier)
    relation = Relation(privacy.relation)
    mechanism = Mechanism(name="update-gaussian", relation=relation, unit=Unit.UPDATE, clip_norm=privacy.clip_norm)
    return mechanism, lambda multiplier: GaussianRelease(noise_multiplier=multiplier)


def _bounds(configuration: Configuration, grant: Grant, pattern: Event, before: History) -> list[float]:
    """Return the noise multipliers that the hospital's bound per release and its earlier runs demand.

    What earlier runs have spent counts only where the noise is derived from a budget: noise set by hand stays as it
    is, and the ledger refuses the release that would not fit.
    """
    privacy, bounds = configuration.privacy, []
    if grant.max_epsilon_per_release:
        bounds.append(least_noise_multiplier(pattern, 1, grant.max_epsilon_per_release, grant, frozenset()))
    if before.counts and not (privacy.noise_multiplier or privacy.release_epsilon):
        planned = privacy.releases or configuration.aggregation.rounds
        bounds.append(least_noise_multiplier(pattern, planned, grant.cap, grant, frozenset(before.counts.items())))
    return bounds


@lru_cache(maxsize=256)
def least_noise_multiplier(
    pattern: Event, releases: int, epsilon: float, grant: Grant, spent: frozenset[tuple[Event, int]]
) -> float:
    """Return the least noise multiplier with which `releases` more like `pattern` stay within `epsilon`.

    Args:
        pattern: a release of any noise multiplier.
        releases: how many more.
        epsilon: that they and `spent` may cost together, by the account and at the delta of `grant`.
        grant: says account and delta.
        spent: events and counts of what was released before.

    Raises:
        BudgetExhaustedError: no noise is enough.
    """
    try:
        return smallest_noise_multiplier(
            lambda multiplier: replace(pattern, noise_multiplier=multiplier),
            releases=releases,
            epsilon=epsilon,
            delta=grant.delta,
            account=account_of(grant.account),
            spent=History(dict(spent)),
        )
    except PrivacyError as error:
        raise BudgetExhaustedError(f"Expected room for {releases} releases within {epsilon:g}: {error}") from None


def warn_of_large_delta(delta: float, units: int) -> None:
    """Warn where delta is so large that publishing all about one of `units` images or patients would satisfy it."""
    if delta * units >= 1:
        _LOGGER.warning("Expected delta=%g < 1/%d units: at this delta the guarantee says little.", delta, units)


def _count_protected(images: ImageSet, unit: Unit) -> int:
    return len(np.unique(images.patients)) if unit is Unit.PATIENT and images.patients is not None else len(images)
