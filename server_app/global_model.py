"""The global model: parameters, version, and the one operation that changes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from federation.errors import RefusalError, RunFailedError
from federation.parameters import Parameters, finite_norm
from federation.records.tensors import EncodedParameters, encode_parameters
from server_app.aggregation.server_optimizer import Averaging, ServerOptimizer

_SAFE_NORM = 1e37


class GlobalModel:
    """Parameters at a version; the encoded broadcast is made once for all who are asked at a time.

    Attributes:
        parameters: of the model.
        optimizer_state: of the server optimizer at this version.
        version: their number.
        is_whole: whether the parameters are those of `version`; False after a step that did not finish.
    """

    def __init__(
        self,
        parameters: Parameters,
        version: int,
        *,
        optimizer: ServerOptimizer | None = None,
        optimizer_state: Parameters | None = None,
    ) -> None:
        """Take over `parameters` at `version`; they are changed in place.

        Args:
            parameters: of the model.
            version: their number.
            optimizer: how updates become the next version; plain averaging if none is given.
            optimizer_state: its state at `version`; that of a fresh start if none is given.
        """
        self._optimizer = optimizer or Averaging()
        self.parameters = parameters
        self.optimizer_state = self._optimizer.begin(parameters) if optimizer_state is None else optimizer_state
        self.version = version
        self.is_whole = True
        self._norm_bound = self._state_bound = math.inf
        self._broadcast: EncodedParameters | None = None

    def broadcast(self) -> EncodedParameters:
        """Return the encoded parameters; the same record for every hospital, to be read only."""
        if self._broadcast is None:
            self._broadcast = encode_parameters(self.parameters)
        return self._broadcast

    def forget_broadcast(self) -> None:
        """Let go of the encoded parameters, which take the memory of one more model until then."""
        self._broadcast = None

    def apply(
        self, updates: Sequence[Callable[[], Parameters]], coefficients: Sequence[float], *, norm: float = math.inf
    ) -> None:
        """Let the optimizer move the model by the sum of `coefficients` times `updates`, and go to the next version.

        Updates are loaded, added in place and let go of one after the other, in the order given: memory does not grow
        with their number, and the same updates give the same bits in every engine.

        Args:
            updates: each returns one update, to be read only.
            coefficients: one per update.
            norm: that the sum has at most, if known: while neither the parameters nor the optimizer's state can
                overflow by it, nothing is looked through afterwards.

        Raises:
            RunFailedError: the result is not finite; the version is not made, and `is_whole` turns false.
        """
        self._broadcast, self.is_whole = None, False
        growth, state_bound = self._optimizer.reach(norm, self._state_bound)
        bound = self._norm_bound + growth
        self._optimizer.step(self.parameters, self.optimizer_state, (load() for load in updates), coefficients)
        if not (bound < _SAFE_NORM and state_bound < _SAFE_NORM):
            bound, state_bound = self._measure()
        self._norm_bound, self._state_bound = bound, state_bound
        self.version += 1
        self.is_whole = True

    def _measure(self) -> tuple[float, float]:
        """Return the norms of the parameters and of the optimizer's state.

        Raises:
            RunFailedError: a value of them or of the optimizer's state is not finite.
        """
        try:
            state_norm = finite_norm(self.optimizer_state)
            return finite_norm(self.parameters), state_norm
        except RefusalError:
            raise RunFailedError(
                f"Version {self.version + 1} is not finite: the run diverged. Lower training.learning-rate and resume."
            ) from None
