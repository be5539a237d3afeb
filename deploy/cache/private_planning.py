"""What a private training of a cache's generator will be, and what it will cost, before an image is looked at."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from client_app.dp_sgd.units import Units, group_units
from client_app.granting import grant_release, require_mechanism, require_unit
from client_app.ledger import ReleaseRequest
from client_app.ledger.release import GENERATOR_RUN
from client_app.policy import SitePolicy
from client_app.protection import least_noise_multiplier, warn_of_large_delta
from deploy.cache.request import BuildRequest
from federation.accounting.accounts import account_of
from federation.accounting.events import History, Relation, SampledGaussianRelease, Unit
from federation.accounting.mechanism import Mechanism
from federation.config import PrivacyConfig
from federation.datasets.image_set import ImageSet
from federation.errors import BudgetExhaustedError, ConfigurationError, PrivacyError, SiteError

_SIMULATED_DELTA = 1e-5
# An epsilon of 0 would be no mechanism's; noise can be so strong that an account rounds to it.
_LEAST_EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTraining:
    """What a private training will be, known before an image is looked at.

    Attributes:
        units: who is protected, and which images are theirs.
        release: what the ledger is asked for; its message is new with every plan.
        event: the event of the release.
        epsilon: what the account says of the event alone.
    """

    units: Units
    release: ReleaseRequest
    event: SampledGaussianRelease
    epsilon: float


def plan_private_training(
    request: BuildRequest, images: ImageSet, policy: SitePolicy | None, data_set: str
) -> PlannedTraining:
    """Return a training within `request.dp_epsilon`, or with more noise where the policy is stricter.

    Args:
        request: epsilon, delta, steps, expected units per step, clip norm.
        images: the permitted ones, of which only the number and the patients' numbers count.
        policy: the hospital's own; None at a simulated hospital.
        data_set: its name in the ledger.

    Raises:
        ConfigurationError: the policy does not allow it, patients' numbers are missing, or no noise is enough.
    """
    given = request.dp
    delta = given.delta or (_SIMULATED_DELTA if policy is None else policy.privacy.max_delta)
    with refusals():
        require_mechanism(policy, "dp-sgd")
        unit = _protected_unit(images, policy)
        privacy = PrivacyConfig(
            mechanism="dp-sgd", epsilon=request.dp_epsilon, delta=delta, clip_norm=given.clip_norm, unit=unit
        )
        require_unit(policy, privacy, knows_patients=images.patients is not None)
        units, grant = group_units(images, privacy), grant_release(policy, privacy)
        pattern = SampledGaussianRelease(
            noise_multiplier=1.0, sampling_probability=min(1.0, given.batch / units.count), steps=given.steps
        )
        bound = min(request.dp_epsilon, grant.max_epsilon_per_release or math.inf)
        multiplier = max(
            least_noise_multiplier(pattern, 1, bound, grant, frozenset()),
            grant.min_noise_multiplier,
        )
    warn_of_large_delta(grant.delta, units.count)
    event = replace(pattern, noise_multiplier=multiplier)
    release = ReleaseRequest(
        run_id=GENERATOR_RUN,
        message_id=secrets.token_hex(16),
        data_set=data_set,
        mechanism=Mechanism(name="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit(unit), clip_norm=given.clip_norm),
        event=event,
        delta=grant.delta,
        cap=grant.cap,
        account=grant.account,
    )
    epsilon = account_of(grant.account).epsilon(History.of([event]), grant.delta)
    return PlannedTraining(units=units, release=release, event=event, epsilon=max(epsilon, _LEAST_EPSILON))


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what a policy or budget does not allow into wrong usage, with the same text.

    Raises:
        ConfigurationError: in place of what the block raised.
    """
    try:
        yield
    except (SiteError, BudgetExhaustedError, PrivacyError) as error:
        raise ConfigurationError(str(error)) from None


def _protected_unit(images: ImageSet, policy: SitePolicy | None) -> Literal["record", "patient"]:
    """Return patients where the policy demands them, or where they are known and not waived; else images."""
    demanded = "default" if policy is None else policy.privacy.unit
    known = demanded == "default" and images.patients is not None
    return "patient" if demanded == "patient" or known else "record"
