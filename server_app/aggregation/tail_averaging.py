"""The mean of the last versions as the final model: it takes noise out of the result and costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from federation.config import AggregationConfig
from federation.parameters import Parameters
from server_app.aggregation.server_optimizer import ServerOptimizer, make_server_optimizer

_SUM, _INNER, _VERSION = "tail-sum/", "tail-inner/", "tail-version"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailAveraging:
    """Lets another optimizer move the model, and makes the last version the mean of the last `length` ones.

    Polyak and Juditsky's averaging (SIAM J. Control Optim. 30(4), 1992), over the tail only. A run that ends early, or
    is resumed for more versions than it was planned for, keeps what the inner optimizer made of it.

    Attributes:
        inner: moves the model.
        rounds: versions of the run; the last of them is averaged.
        length: how many of them, at most `rounds`.
    """

    inner: ServerOptimizer
    rounds: int
    length: int

    def begin(self, parameters: Parameters) -> Parameters:
        """Return an empty sum beside the inner state."""
        sums = {f"{_SUM}{name}": torch.zeros_like(value) for name, value in parameters.items()}
        return {_VERSION: torch.zeros(1), **sums, **_within(self.inner.begin(parameters))}

    def step(
        self, parameters: Parameters, state: Parameters, updates: Iterable[Parameters], coefficients: Sequence[float]
    ) -> None:
        """Move the parameters and the state; the last version becomes the mean of the tail."""
        inner = {name.removeprefix(_INNER): value for name, value in state.items() if name.startswith(_INNER)}
        self.inner.step(parameters, inner, updates, coefficients)
        version = int(state[_VERSION].add_(1))
        if version > self.rounds - self.length:
            for name, value in parameters.items():
                state[f"{_SUM}{name}"].add_(value)
        if version == self.rounds:
            for name, value in parameters.items():
                torch.div(state[f"{_SUM}{name}"], self.length, out=value)

    def reach(self, step_norm: float, state_norm: float) -> tuple[float, float]:
        """Return infinity: the sums decide."""
        del step_norm, state_norm
        return math.inf, math.inf


def with_tail_averaging(settings: AggregationConfig) -> ServerOptimizer:
    """Return the optimizer that `settings` name, averaging its last versions if they ask for it."""
    inner = make_server_optimizer(settings)
    if not settings.average_last:
        return inner
    return TailAveraging(inner=inner, rounds=settings.rounds, length=settings.average_last)


def _within(state: Mapping[str, Tensor]) -> Parameters:
    return {f"{_INNER}{name}": value for name, value in state.items()}
