"""The last step of the model, kept so that the angle of the next updates to it can be measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from federation.config import AggregationConfig
from federation.parameters import Parameters
from server_app.aggregation.server_optimizer import ServerOptimizer

_STEP, _INNER = "last-step/", "stepping/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStep:
    """Lets another optimizer move the model and keeps the difference; costs the memory of two models.

    Attributes:
        inner: moves the model.
    """

    inner: ServerOptimizer

    def begin(self, parameters: Parameters) -> Parameters:
        """Return a step of zero beside the inner state."""
        step = {f"{_STEP}{name}": torch.zeros_like(value) for name, value in parameters.items()}
        inner = {f"{_INNER}{name}": value for name, value in self.inner.begin(parameters).items()}
        return step | inner

    def step(
        self, parameters: Parameters, state: Parameters, updates: Iterable[Parameters], coefficients: Sequence[float]
    ) -> None:
        """Move the parameters and note how far."""
        inner = {name.removeprefix(_INNER): value for name, value in state.items() if name.startswith(_INNER)}
        for name, value in parameters.items():
            state[f"{_STEP}{name}"].copy_(value)
        self.inner.step(parameters, inner, updates, coefficients)
        for name, value in parameters.items():
            torch.sub(value, state[f"{_STEP}{name}"], out=state[f"{_STEP}{name}"])

    def reach(self, step_norm: float, state_norm: float) -> tuple[float, float]:
        """Return infinity: the steps are state."""
        del step_norm, state_norm
        return math.inf, math.inf


def last_step_of(state: Mapping[str, torch.Tensor]) -> Parameters | None:
    """Return the last step in the `state` of an optimizer, or None where none is kept."""
    return {key.removeprefix(_STEP): value for key, value in state.items() if key.startswith(_STEP)} or None


def with_last_step(settings: AggregationConfig, inner: ServerOptimizer) -> ServerOptimizer:
    """Return `inner`, keeping its last step if `settings` ask for the angle to it."""
    return LastStep(inner=inner) if settings.direction_scaling else inner
