"""One step of the model: the updates that are taken together, what each weighs, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from server_app.aggregation.rule import Update
from server_app.aggregation.weighing import Weight
from server_app.influence import mean_sizes
from server_app.parts import Parts
from server_app.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Updates with their weights, in the order in which they are added.

    Attributes:
        updates: taken together.
        weights: of each, factor by factor.
        coefficients: of each in the sum.
        version: of the model that they are added to.
    """

    updates: Sequence[Update]
    weights: Sequence[Weight]
    coefficients: Sequence[float]
    version: int

    @property
    def norm(self) -> float:
        """Bound of the step's L2 norm: the sum of those of its parts."""
        return math.fsum(c * update.norm for c, update in zip(self.coefficients, self.updates, strict=True))

    def without_tensors(self) -> Step:
        """Return what is known of the step beside its tensors, so that nothing holds them any longer."""
        return replace(self, updates=[update.without_tensors() for update in self.updates])

    def count_in(self, progress: Progress) -> None:
        """Count the updates as applied."""
        for update, weight, coefficient in zip(self.updates, self.weights, self.coefficients, strict=True):
            progress.apply(update.hospital_id, self.version - update.base_version, coefficient, weight.as_row())

    def rows(self) -> list[dict[str, object]]:
        """Return what the event log tells of every update."""
        return [
            {
                "hospital": update.hospital_id,
                "number": update.number,
                "staleness": self.version - update.base_version,
                "examples": update.examples,
                "factors": weight.as_row(),
                "weight": coefficient,
            }
            for update, weight, coefficient in zip(self.updates, self.weights, self.coefficients, strict=True)
        ]


def weigh_step(parts: Parts, updates: Sequence[Update]) -> Step:
    """Return the step that `updates` make now, and remember what later ones are compared with."""
    progress, version = parts.progress, parts.model.version
    weights = parts.weighing.weigh(
        updates,
        version=version,
        applied={name: item.updates for name, item in progress.contributions.items()},
        norms=progress.norms,
        least_variance=progress.least_variance or 0.0,
    )
    for update in updates:
        if parts.settings.aggregation.anomaly_threshold:
            progress.norms.note(update.hospital_id, variance=update.noise_variance, norm=update.norm)
        if update.noise_variance:
            progress.least_variance = min(progress.least_variance or math.inf, update.noise_variance)
    own = {update.hospital_id: weight.size for update, weight in zip(updates, weights, strict=True)}
    coefficients = parts.weighing.coefficients(weights, sizes=mean_sizes(progress) | own)
    return Step(updates=updates, weights=weights, coefficients=coefficients, version=version)
