"""Recent norms of updates at each noise level: what `weights.anomaly_factor` compares a new update with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from server_app.aggregation.weights import FEWEST_NORMS

_NORMS_PER_HOSPITAL = 10
_NORMS = 2000
_FEWEST_HOSPITALS = 3


def level_of(variance: float) -> str:
    """Return the name of the noise level of `variance`: its two leading digits and exponent, such as "1.2e+03".

    Noise makes up most of a noisy update's norm, so that only norms under about the same noise can be compared.
    """
    return f"{variance:.1e}"


class NormHistory(BaseModel):
    """The last norms of every hospital at every noise level; part of the progress and so of every checkpoint.

    Every hospital keeps its own last 10, however often it answers: a fast one cannot push the slow ones' norms out,
    and fewer than half of the hospitals at a level cannot move its median beyond the honest norms. Levels that were
    not used for longest are dropped while there are more than 2000 norms in all.

    Not guaranteed: a hospital without peers, because no other declares any noise, is compared with itself only.

    Attributes:
        levels: norms, oldest first, per level and hospital id; the level used last stands last.
    """

    model_config = ConfigDict(extra="forbid")

    levels: dict[str, dict[str, list[FiniteFloat]]] = Field(default_factory=dict)

    def note(self, hospital_id: str, *, variance: float, norm: float) -> None:
        """Remember the `norm` of an update of `hospital_id` that declared noise of `variance`, if it is finite."""
        if not math.isfinite(norm):
            return
        level = level_of(variance)
        hospitals = self.levels.pop(level, {})
        hospitals[hospital_id] = [*hospitals.get(hospital_id, []), norm][-_NORMS_PER_HOSPITAL:]
        self.levels[level] = hospitals
        while len(self.levels) > 1 and self._count() > _NORMS:
            del self.levels[next(iter(self.levels))]

    def _count(self) -> int:
        return sum(len(norms) for hospitals in self.levels.values() for norms in hospitals.values())


def comparable_norms(levels: Mapping[str, Mapping[str, Sequence[float]]], variance: float) -> list[float]:
    """Return what the norm of an update under noise of `variance` can be compared with.

    Those are the norms at its level; where fewer than 3 hospitals or 8 norms are there, also those of the nearest
    levels, until there are, so that who declares a little more noise than all others does not escape comparison. Noise
    makes a norm grow with the root of its variance at most: norms under less noise are scaled up by that, and those
    under more are left as they are. Every hospital counts with 10 norms at most.

    Args:
        levels: norms per level and hospital id, oldest first.
        variance: declared; updates without noise are compared among themselves only.
    """
    own = float(level_of(variance))
    places = {level: float(level) for level in levels if (float(level) > 0) == (own > 0)}
    found: dict[str, list[float]] = {}
    for level in sorted(places, key=lambda name: abs(math.log(places[name] / own)) if own else 0.0):
        if len(found) >= _FEWEST_HOSPITALS and sum(map(len, found.values())) >= FEWEST_NORMS:
            break
        scale = math.sqrt(max(1.0, own / places[level])) if own else 1.0
        for name, norms in levels[level].items():
            mine = found.setdefault(name, [])
            mine += [scale * norm for norm in [*reversed(norms)][: _NORMS_PER_HOSPITAL - len(mine)]]
    return [norm for norms in found.values() for norm in norms]
