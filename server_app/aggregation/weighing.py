"""From updates to the coefficients of a step: every factor of `weights` side by side, their product, their scale.

A step of the model is the sum of coefficient times update. What the server's optimizer makes of it comes after.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from federation.config import AggregationConfig
from server_app.aggregation.norm_history import NormHistory, comparable_norms, level_of
from server_app.aggregation.rule import Update
from server_app.aggregation.weights import (
    anomaly_factor,
    balance_factor,
    direction_factor,
    noise_factor,
    shift_factor,
    size_factor,
    staleness_factor,
)

_KEYS = {
    "staleness": "aggregation.staleness",
    "shift": "aggregation.shifts",
    "anomaly": "aggregation.anomaly-threshold",
    "direction": "aggregation.direction-scaling",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """The factors of one update, apart, so that an old update can be told from a noisy one.

    Attributes:
        size: of the training images behind it, from `size_factor`.
        staleness: of its age.
        noise: of the noise that it declares.
        shift: of its hospital's distance from the others' data.
        anomaly: of a norm that is too large.
        direction: of its angle to the model's last step.
        balance: of how rarely its hospital answers.
    """

    size: float = 1.0
    staleness: float = 1.0
    noise: float = 1.0
    shift: float = 1.0
    anomaly: float = 1.0
    direction: float = 1.0
    balance: float = 1.0

    @property
    def product(self) -> float:
        """What the update weighs."""
        return math.prod(self.as_row().values())

    def as_row(self) -> dict[str, float]:
        """Return the factors by name, for the event log."""
        return asdict(self)


class Weighing:
    """Weighs the updates of a step by the settings of a run."""

    def __init__(self, settings: AggregationConfig, examples_by_hospital: Callable[[], Mapping[str, int]]) -> None:
        """Weigh by `settings`.

        Args:
            settings: which factors there are, and how updates are applied.
            examples_by_hospital: returns the training images of every hospital that is enrolled at that moment.
        """
        self._settings = settings
        self._shifts = settings.shift_by_hospital
        self._examples = examples_by_hospital

    def weigh(
        self,
        updates: Sequence[Update],
        *,
        version: int,
        applied: Mapping[str, int],
        norms: NormHistory,
        least_variance: float = 0.0,
    ) -> list[Weight]:
        """Return the weight of every update; nothing is changed.

        Args:
            updates: those of one step.
            version: of the model that they are applied to.
            applied: updates applied before this step, per hospital id.
            norms: of updates before this step; those of `updates` count as well, so that the first step is guarded.
            least_variance: smallest positive noise variance that any hospital has declared; 0 when none has. Those of
                `updates` count as well.
        """
        settings = self._settings
        counts = Counter(applied) + Counter(update.hospital_id for update in updates)
        enrolled = [counts[name] for name in self._examples().keys() | {update.hospital_id for update in updates}]
        variances = [variance for variance in (least_variance, *_variances(updates)) if variance > 0]
        least = min(variances, default=0.0) if settings.noise_weighting else 0.0
        levels = _norms_by_level(updates, norms) if settings.anomaly_threshold else {}
        return [
            Weight(
                size=size_factor(update.examples, settings.weighting),
                staleness=staleness_factor(version - update.base_version, settings),
                noise=noise_factor(update.noise_variance, least),
                shift=shift_factor(self._shifts.get(update.hospital_id, 0.0)),
                anomaly=anomaly_factor(
                    update.norm, comparable_norms(levels, update.noise_variance), settings.anomaly_threshold
                ),
                direction=direction_factor(update.cosine) if settings.direction_scaling else 1.0,
                balance=balance_factor(counts[update.hospital_id], enrolled, settings.balance, settings.balance_limit),
            )
            for update in updates
        ]

    def coefficients(self, weights: Sequence[Weight], *, sizes: Mapping[str, float] | None = None) -> list[float]:
        """Return the coefficients of the updates with `weights` in the step that takes them together.

        Synchronous rules: product / sum of products, the convex mean of FedAvg (arXiv 1602.05629, algorithm 1). A
        factor that all updates share cancels. Where no update weighs anything, all coefficients are 0.

        Asynchronous rules: product / (number of updates x mean size factor of the hospitals). As in FedBuff (arXiv
        2106.06639, algorithm 1), the sum is divided by the number of updates and not by that of the weights, so that
        old or suspicious updates shorten the step instead of handing their share to the others. All together weigh
        `aggregation.balance-limit` at most, so that no update, however its factors add up, moves the model farther.

        Deviation: FedBuff has no size factor. Here it is relative to the mean hospital, so that a step of fresh
        updates has length 1 on average, and one that is applied alone still weighs by its size.

        Deviation: FedAsync (arXiv 1903.03934, algorithm 1) mixes models, (1 - a) x + a x_new with a = alpha s(t - tau).
        We add the update, x + a (x_new - x_tau), alpha being the server's learning rate. For fresh updates that is the
        same; for old ones, mixing would also undo a share a of what others have contributed since version tau.

        Args:
            weights: of the updates of one step.
            sizes: mean size factor of the updates of every hospital that has contributed, in this step or before.
        """
        products = [weight.product for weight in weights]
        if self._settings.is_synchronous:
            total = sum(products)
            return [product / total if total > 0 else 0.0 for product in products]
        scale = self._mean_size(weights, sizes or {}) * len(weights)
        coefficients = [product / scale for product in products]
        excess = max(1.0, math.fsum(coefficients) / self._settings.balance_limit)
        return [coefficient / excess for coefficient in coefficients]

    def _mean_size(self, weights: Sequence[Weight], sizes: Mapping[str, float]) -> float:
        """Return the mean size factor of the enrolled hospitals, or of `weights` when nobody is enrolled any more.

        Who has contributed counts with what stood behind the updates. Who has not counts with what it says it has, but
        at most `aggregation.balance-limit` times the median hospital: a slow hospital that holds much is expected as
        it is, and one that invents images and sends nothing cannot silence the others.
        """
        said = {name: size_factor(examples, self._settings.weighting) for name, examples in self._examples().items()}
        most = self._settings.balance_limit * statistics.median_low(said.values()) if said else 0.0
        counted = [sizes[name] if name in sizes else min(size, most) for name, size in said.items()]
        counted = [size for size in counted if size > 0] or [weight.size for weight in weights]
        return statistics.fmean(counted) if counted else 1.0


def _variances(updates: Sequence[Update]) -> list[float]:
    return [update.noise_variance for update in updates]


def _norms_by_level(updates: Sequence[Update], history: NormHistory) -> dict[str, dict[str, list[float]]]:
    """Return the norms of `history` and `updates` per noise level and hospital."""
    levels = {level: {name: [*norms] for name, norms in known.items()} for level, known in history.levels.items()}
    for update in updates:
        if math.isfinite(update.norm):
            known = levels.setdefault(level_of(update.noise_variance), {})
            known.setdefault(update.hospital_id, []).append(update.norm)
    return levels


def explain_weightless(weights: Sequence[Weight]) -> str:
    """Return the sentence that a round of `weights` weighs nothing, with the keys of the settings that made it so."""
    zero = {name for weight in weights for name, factor in weight.as_row().items() if not factor}
    keys = ", ".join(_KEYS.get(name, name) for name in sorted(zero))
    return f"Expected an update that weighs more than 0, found {len(weights)} that weigh nothing; see {keys or 'them'}."
