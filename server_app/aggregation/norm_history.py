"""Recent norms of updates at each noise level: what `weights.anomaly_factor` compares a new update with."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

_NORMS_PER_HOSPITAL = 10
_NORMS = 2000


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

    Not guaranteed: a hospital alone at its level, because no other declares such noise, is compared with itself only.

    Attributes:
        levels: norms, oldest first, per level and hospital id; the level used last stands last.
    """

    model_config = ConfigDict(extra="forbid")

    levels: dict[str, dict[str, list[FiniteFloat]]] = Field(default_factory=dict)

    def of_level(self, variance: float) -> list[float]:
        """Return the recent norms at the noise level of `variance`."""
        hospitals = self.levels.get(level_of(variance), {})
        return [norm for norms in hospitals.values() for norm in norms]

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
