"""The global model: parameters, version, and the one operation that changes them."""

from __future__ import annotations

from collections.abc import Sequence

from federation.errors import RunFailedError
from federation.parameters import Parameters, is_finite
from federation.records.tensors import EncodedParameters, encode_parameters
from server_app.aggregation.server_optimizer import Averaging, ServerOptimizer


class GlobalModel:
    """Parameters at a version; the encoded broadcast of a version is made once."""

    def __init__(
        self,
        parameters: Parameters,
        version: int,
        *,
        optimizer: ServerOptimizer | None = None,
        optimizer_state: Parameters | None = None,
    ) -> None:
        """Take over `parameters` at `version`.

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
        self._broadcast: EncodedParameters | None = None

    def broadcast(self) -> EncodedParameters:
        """Return the encoded parameters; the same record for every hospital, to be read only."""
        if self._broadcast is None:
            self._broadcast = encode_parameters(self.parameters)
        return self._broadcast

    def apply(self, updates: Sequence[Parameters], weights: Sequence[float]) -> None:
        """Let the optimizer move the model by the weighted mean of `updates`, and go to the next version.

        Updates are added in the order given, so that the same updates give the same bits in every engine.

        Raises:
            RunFailedError: the result is not finite; the model is left as it was.
        """
        moved, state = self._optimizer.step(self.parameters, self.optimizer_state, updates, weights)
        if not (is_finite(moved) and is_finite(state)):
            raise RunFailedError(
                f"Version {self.version + 1} is not finite: the run diverged. Lower training.learning-rate and resume."
            )
        self.parameters, self.optimizer_state = moved, state
        self.version += 1
        self._broadcast = None
