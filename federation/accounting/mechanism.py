"""What a mechanism promises, and for whom: neighbouring relation, unit and sensitivity beside its name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from federation.accounting.events import Relation, Unit
from federation.errors import PrivacyError

MechanismName = Literal["none", "dp-sgd", "update-gaussian", "metrics"]
MECHANISMS: tuple[MechanismName, ...] = get_args(MechanismName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """How one kind of release is protected.

    Guarantee: two neighbouring inputs, by `relation` between units of kind `unit`, move the sum of vectors whose L2
        norms were clipped to `clip_norm` by at most `sensitivity`.
    Not guaranteed: any epsilon: that depends on the noise, and an account says it. Under `none` nothing is bounded.

    Attributes:
        name: `none`, `dp-sgd` (a clipped gradient per record or patient and step), `update-gaussian` (the whole
            update, clipped once), or `metrics` (answers to evaluation tasks).
        relation: which inputs are neighbours. Under `dp-sgd` a unit is added or removed; replacing one under Poisson
            sampling is not offered, because no account here counts it.
        unit: who is protected. Under `update-gaussian` the update: a single record may move it as far as all do.
        clip_norm: L2 norm C to which each contribution is clipped; not used under `none`.
    """

    name: MechanismName
    relation: Relation
    unit: Unit
    clip_norm: float

    def __post_init__(self) -> None:
        """Check that name, relation, unit and clip norm go together."""
        if self.name not in MECHANISMS:
            raise PrivacyError(f"Expected a mechanism named {', '.join(MECHANISMS)}, found {self.name!r}.")
        if self.name != "none" and not (self.clip_norm > 0 and math.isfinite(self.clip_norm)):
            raise PrivacyError(f"Expected a finite clip_norm={self.clip_norm} > 0.")
        if self.name == "dp-sgd" and self.relation is Relation.REPLACE_ONE:
            raise PrivacyError("Expected add-remove or zero-out under dp-sgd, found replace-one: no account counts it.")
        if self.name == "dp-sgd" and self.unit is Unit.UPDATE:
            raise PrivacyError("Expected dp-sgd to protect records or patients, found updates: use update-gaussian.")
        if self.name == "update-gaussian" and self.unit is not Unit.UPDATE:
            raise PrivacyError(f"Expected update-gaussian to protect updates, found {self.unit}s: use dp-sgd.")

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of what the noise is added to: C, 2C under replace-one, infinite without a mechanism."""
        return math.inf if self.name == "none" else self.relation.sensitivity(self.clip_norm)

    def in_words(self) -> str:
        """Return what is protected, for example "record-level, add-remove, L2 sensitivity C = 1"."""
        if self.name == "none":
            return "no differential privacy"
        symbol = "2C" if self.relation is Relation.REPLACE_ONE else "C"
        return f"{self.unit}-level, {self.relation}, L2 sensitivity {symbol} = {self.sensitivity:g}"


METRICS = Mechanism(name="metrics", relation=Relation.ADD_REMOVE, unit=Unit.RECORD, clip_norm=1.0)
"""How scores are protected: one image changes the number of correct answers by at most 1."""
