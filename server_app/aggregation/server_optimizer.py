"""What the server makes of the weighted mean of updates: the next model, by plain averaging, momentum or Adam.

The mean of model updates is a descent direction, so any optimizer may take it in place of a negative gradient (arXiv
2003.00295, algorithm 1). All of it happens after the updates left their hospitals and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from federation.config import AggregationConfig
from federation.parameters import Parameters

_MOMENTUM, _SECOND_MOMENT = "momentum/", "second-moment/"


class ServerOptimizer(Protocol):
    """Goes from one version to the next. It keeps nothing itself: the state is handed in and changed, and saved."""

    def begin(self, parameters: Parameters) -> Parameters:
        """Return the state before the first step: named tensors, perhaps none."""

    def step(
        self, parameters: Parameters, state: Parameters, updates: Iterable[Parameters], coefficients: Sequence[float]
    ) -> None:
        """Move `parameters` and `state` in place by the sum of `coefficients` times `updates`.

        Args:
            parameters: of the current version; of the next one afterwards.
            state: what `begin` returned, as the steps before left it.
            updates: parameters after local training minus parameters before, at least one; each is used up before the
                next is asked for, and only read. Added in this order, so that the same ones give the same bits.
            coefficients: one per update.
        """

    def reach(self, step_norm: float, state_norm: float) -> tuple[float, float]:
        """Return how much the norm of the parameters can grow at most in a step, and that of the state afterwards.

        Args:
            step_norm: that the weighted sum of the updates has at most.
            state_norm: that the state has at most before the step.

        Returns:
            Two bounds; infinity where none is known without looking.
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
        self, parameters: Parameters, state: Parameters, updates: Iterable[Parameters], coefficients: Sequence[float]
    ) -> None:
        """Make x + learning_rate * mean of x; needs no memory beyond one update."""
        del state
        _add(parameters, updates, coefficients, factor=self.learning_rate)

    def reach(self, step_norm: float, state_norm: float) -> tuple[float, float]:
        """Return `step_norm` times the learning rate; the state stays as it is."""
        return self.learning_rate * step_norm, state_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Momentum:
    """FedAvgM (arXiv 1909.06335, section 4.3): v = momentum * v + mean; x = x + learning_rate * v."""

    learning_rate: float
    momentum: float

    def begin(self, parameters: Parameters) -> Parameters:
        """Return a momentum of zero."""
        return {f"{_MOMENTUM}{name}": torch.zeros_like(value) for name, value in parameters.items()}

    def step(
        self, parameters: Parameters, state: Parameters, updates: Iterable[Parameters], coefficients: Sequence[float]
    ) -> None:
        """Move the momentum, then the parameters by it."""
        velocity = {name: state[f"{_MOMENTUM}{name}"].mul_(self.momentum) for name in parameters}
        _add(velocity, updates, coefficients)
        for name, value in parameters.items():
            value.add_(velocity[name], alpha=self.learning_rate)

    def reach(self, step_norm: float, state_norm: float) -> tuple[float, float]:
        """Return what the triangle inequality gives for the formula."""
        moved = self.momentum * state_norm + step_norm
        return self.learning_rate * moved, moved


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
        self, parameters: Parameters, state: Parameters, updates: Iterable[Parameters], coefficients: Sequence[float]
    ) -> None:
        """Move both moments, then the parameters."""
        mean = {name: torch.zeros_like(value) for name, value in parameters.items()}
        _add(mean, updates, coefficients)
        for name, value in parameters.items():
            change = mean[name]
            first = state[f"{_MOMENTUM}{name}"].mul_(self.momentum).add_(change, alpha=1 - self.momentum)
            second = state[f"{_SECOND_MOMENT}{name}"].mul_(self.beta2)
            second.addcmul_(change, change, value=1 - self.beta2)
            value.addcdiv_(first, second.sqrt().add_(self.adaptivity), value=self.learning_rate)

    def reach(self, step_norm: float, state_norm: float) -> tuple[float, float]:
        """Return infinity: the moments decide."""
        del step_norm, state_norm
        return math.inf, math.inf


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


def _add(
    target: Parameters, updates: Iterable[Parameters], coefficients: Sequence[float], *, factor: float = 1.0
) -> None:
    """Add `factor` times the weighted sum of `updates` to `target` in place, one update after another.

    `_foreach_add_`, which torch's own optimizers use, gives the bits of a loop over `add_` in less time per tensor.
    """
    names, values = list(target), list(target.values())
    for update, coefficient in zip(updates, coefficients, strict=True):
        torch._foreach_add_(values, [update[name] for name in names], alpha=factor * coefficient)


def _prefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Parameters:
    return {f"{prefix}{name}": value for name, value in tensors.items()}
