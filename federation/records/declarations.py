"""What a hospital says about the privacy of one answer: mechanism, event and account, so that a server can check it.

Everything in a declaration follows from the mechanism's parameters and the number of protected units, nothing from
what the data hold. Read next: `server_app.mirror`, which believes none of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from federation.accounting.accounts import ACCOUNTS
from federation.accounting.events import (
    Event,
    Relation,
    SampledGaussianRelease,
    Unit,
    event_as_dict,
    event_from_dict,
)
from federation.accounting.mechanism import MECHANISMS, Mechanism, MechanismName
from federation.errors import PrivacyError, RefusalCode, RefusalError
from federation.records.fields import bounded_of, number_of, text_of

_PROTECTED = tuple(name for name in MECHANISMS if name != "none")
_LARGEST_RELEASES = 10**9
_PREFIX = "privacy."


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """How one answer is protected and what it has cost.

    Attributes:
        mechanism: "dp-sgd", "update-gaussian" or "metrics".
        relation: which data sets are neighbours.
        unit: whose presence is protected.
        clip_norm: C of the mechanism.
        event: what was released.
        delta: at which epsilon is counted.
        account: the account that binds at the hospital.
        spent: epsilon of everything released from the data set by that account, this answer included.
        cap: the most epsilon that the hospital will spend on the data set.
        releases: entries of the data set in the hospital's ledger, this one included.
        uncovered: those among them that epsilon does not cover (no mechanism, or another unit); above 0, none holds.
    """

    mechanism: str
    relation: Relation
    unit: Unit
    clip_norm: float
    event: Event
    delta: float
    account: str
    spent: float
    cap: float
    releases: int
    uncovered: int = 0


def encode_declaration(declaration: Declaration | None) -> dict[str, str | int | float]:
    """Return `declaration` as scalars of a config record; nothing where an answer is not protected."""
    if declaration is None:
        return {}
    content: dict[str, str | int | float] = {
        "mechanism": declaration.mechanism,
        "relation": declaration.relation.value,
        "unit": declaration.unit.value,
        "clip-norm": declaration.clip_norm,
        "delta": declaration.delta,
        "account": declaration.account,
        "spent": declaration.spent,
        "cap": declaration.cap,
        "releases": declaration.releases,
        "uncovered": declaration.uncovered,
        **{f"event.{key}": value for key, value in event_as_dict(declaration.event).items()},
    }
    return {f"{_PREFIX}{key}": value for key, value in content.items()}


def decode_declaration(config: Mapping[str, Any]) -> Declaration | None:
    """Return the declaration in `config`, or None when the answer claims no protection.

    Raises:
        RefusalError: it is incomplete, a value is out of bounds, or mechanism, relation, unit, clip norm and event do
            not go together.
    """
    content = {key.removeprefix(_PREFIX): value for key, value in config.items() if key.startswith(_PREFIX)}
    if not content:
        return None
    event = {key.removeprefix("event."): value for key, value in content.items() if key.startswith("event.")}
    try:
        mechanism = _mechanism_of(content)
        return Declaration(
            mechanism=mechanism.name,
            relation=mechanism.relation,
            unit=mechanism.unit,
            clip_norm=mechanism.clip_norm,
            event=_event_of(event, mechanism),
            delta=_positive(content, "delta", below=1.0),
            account=_one_of(content, "account", tuple(ACCOUNTS)),
            spent=_positive(content, "spent"),
            cap=_positive(content, "cap"),
            releases=bounded_of(content, "releases", largest=_LARGEST_RELEASES),
            uncovered=bounded_of(content, "uncovered", smallest=0, largest=_LARGEST_RELEASES),
        )
    except PrivacyError as error:
        raise RefusalError(RefusalCode.MALFORMED, f"Privacy declaration: {error}") from None


def _mechanism_of(content: Mapping[str, Any]) -> Mechanism:
    return Mechanism(
        name=cast(MechanismName, _one_of(content, "mechanism", _PROTECTED)),
        relation=Relation(_one_of(content, "relation", tuple(Relation))),
        unit=Unit(_one_of(content, "unit", tuple(Unit))),
        clip_norm=_positive(content, "clip-norm"),
    )


def _event_of(content: Mapping[str, Any], mechanism: Mechanism) -> Event:
    event = event_from_dict(content)
    if isinstance(event, SampledGaussianRelease) != (mechanism.name == "dp-sgd"):
        raise PrivacyError(f"Expected an event of {mechanism.name}, found a {type(event).__name__}.")
    return event


def _one_of(content: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    value = text_of(content, key)
    if value not in known:
        raise RefusalError(RefusalCode.MALFORMED, f"Expected {key} of {', '.join(known)}, found {value!r}.")
    return value


def _positive(content: Mapping[str, Any], key: str, *, below: float = math.inf) -> float:
    value = number_of(content, key)
    if not 0 < value < below:
        raise RefusalError(RefusalCode.MALFORMED, f"Expected 0 < {key}={value} < {below}.")
    return value
