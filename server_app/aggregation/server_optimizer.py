"""What the server makes of the weighted mean of updates: the next model, by plain averaging, momentum or Adam.

The mean of model updates is a descent direction, so any optimizer may take it in place of a negative gradient (arXiv
2003.00295, algorithm 1). All of it happens after the updates left their hospitals and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from federation.config import AggregationConfig
from federation.parameters import Parameters

_MOMENTUM, _SECOND_MOMENT = "momentum/", "second-moment/"


class ServerOptimizer(Protocol):
    """Goes from one version to the next. It keeps nothing itself: the state is handed in and out, and saved."""

    def begin(self, parameters: Parameters) -> Parameters:
        """Return the state before the first step: named tensors, perhaps none."""

    def step(
        self, parameters: Parameters, state: Parameters, updates: Sequence[Parameters], weights: Sequence[float]
    ) -> tuple[Parameters, Parameters]:
        """Return the next parameters and the next state; what is handed in is only read.

        Args:
            parameters: of the current version.
            state: what `begin` or the step before returned.
            updates: parameters after local training minus parameters before, at least one; added in this order, so
                that the same updates give the same bits in every engine.
            weights: of the updates, above 0; only their ratio counts.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging:
    """Adds the weighted mean (arXiv 1602.05629, algorithm 1), times a learning rate (server-side SGD)."""

    learning_rate: float = 1.0

    def begin(self, parameters: Parameters) -> Parameters:
        """Return no state."""
        del parameters
        return {}

    def step(
        self, parameters: Parameters, state: Parameters, updates: Sequence[Parameters], weights: Sequence[float]
    ) -> tuple[Parameters, Parameters]:
        """Return x + learning_rate * mean."""
        moved = {name: value.clone() for name, value in parameters.items()}
        _add_mean(moved, updates, weights, factor=self.learning_rate)
        return moved, state


@dataclass(frozen=True, slots=True, kw_only=True)
class Momentum:
    """FedAvgM (arXiv 1909.06335, section 4.3): v = momentum * v + mean; x = x + learning_rate * v."""

    learning_rate: float
    momentum: float

    def begin(self, parameters: Parameters) -> Parameters:
        """Return a momentum of zero."""
        return {f"{_MOMENTUM}{name}": torch.zeros_like(value) for name, value in parameters.items()}

    def step(
        self, parameters: Parameters, state: Parameters, updates: Sequence[Parameters], weights: Sequence[float]
    ) -> tuple[Parameters, Parameters]:
        """Return the next parameters and the next momentum."""
        velocity = {name: state[f"{_MOMENTUM}{name}"] * self.momentum for name in parameters}
        _add_mean(velocity, updates, weights)
        moved = {name: value.add(velocity[name], alpha=self.learning_rate) for name, value in parameters.items()}
        return moved, _prefixed(_MOMENTUM, velocity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """FedAdam (arXiv 2003.00295, algorithm 2), without bias correction, as there.

    m = momentum * m + (1 - momentum) * mean; v = beta2 * v + (1 - beta2) * mean^2;
    x = x + learning_rate * m / (sqrt(v) + adaptivity). v starts at adaptivity^2, the least that the paper allows.
    """

    learning_rate: float
    momentum: float
    beta2: float
    adaptivity: float

    def begin(self, parameters: Parameters) -> Parameters:
        """Return a first moment of zero and a second of adaptivity^2."""
        first = {name: torch.zeros_like(value) for name, value in parameters.items()}
        second = {name: torch.full_like(value, self.adaptivity**2) for name, value in parameters.items()}
        return _prefixed(_MOMENTUM, first) | _prefixed(_SECOND_MOMENT, second)

    def step(
        self, parameters: Parameters, state: Parameters, updates: Sequence[Parameters], weights: Sequence[float]
    ) -> tuple[Parameters, Parameters]:
        """Return the next parameters and both next moments."""
        mean = {name: torch.zeros_like(value) for name, value in parameters.items()}
        _add_mean(mean, updates, weights)
        moved: Parameters = {}
        first: Parameters = {}
        second: Parameters = {}
        for name, value in parameters.items():
            change = mean[name]
            first[name] = state[f"{_MOMENTUM}{name}"].mul(self.momentum).add_(change, alpha=1 - self.momentum)
            second[name] = state[f"{_SECOND_MOMENT}{name}"].mul(self.beta2)
            second[name].addcmul_(change, change, value=1 - self.beta2)
            moved[name] = value.addcdiv(
                first[name], second[name].sqrt().add_(self.adaptivity), value=self.learning_rate
            )
        return moved, _prefixed(_MOMENTUM, first) | _prefixed(_SECOND_MOMENT, second)


def make_server_optimizer(settings: AggregationConfig) -> ServerOptimizer:
    """Return the optimizer that `aggregation.server-optimizer` names."""
    if settings.server_optimizer == "average":
        return Averaging(learning_rate=settings.server_learning_rate)
    if settings.server_optimizer == "momentum":
        return Momentum(learning_rate=settings.server_learning_rate, momentum=settings.server_momentum)
    return Adam(
        learning_rate=settings.server_learning_rate,
        momentum=settings.server_momentum,
        beta2=settings.server_beta2,
        adaptivity=settings.server_adaptivity,
    )


def _add_mean(
    target: Parameters, updates: Sequence[Parameters], weights: Sequence[float], *, factor: float = 1.0
) -> None:
    """Add `factor` times the weighted mean of `updates` to `target` in place, one update after another."""
    total = sum(weights)
    for update, weight in zip(updates, weights, strict=True):
        for name, value in target.items():
            value.add_(update[name], alpha=factor * (weight / total))


def _prefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Parameters:
    return {f"{prefix}{name}": value for name, value in tensors.items()}
