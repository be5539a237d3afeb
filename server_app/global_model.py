"""The global model: parameters, version, and the one operation that changes them."""

from __future__ import annotations

from collections.abc import Sequence

from federation.errors import RunFailedError
from federation.parameters import Parameters, is_finite
from federation.records.tensors import EncodedParameters, encode_parameters


class GlobalModel:
    """Parameters at a version; the encoded broadcast of a version is made once."""

    def __init__(self, parameters: Parameters, version: int) -> None:
        """Take over `parameters` at `version`."""
        self.parameters = parameters
        self.version = version
        self._broadcast: EncodedParameters | None = None

    def broadcast(self) -> EncodedParameters:
        """Return the encoded parameters; the same record for every hospital, to be read only."""
        if self._broadcast is None:
            self._broadcast = encode_parameters(self.parameters)
        return self._broadcast

    def apply(self, updates: Sequence[Parameters], weights: Sequence[float]) -> None:
        """Add the weighted mean of `updates` and go to the next version.

        Updates are added in the order given, so that the same updates give the same bits in every engine.

        Raises:
            RunFailedError: the result is not finite; the model is left as it was.
        """
        total = sum(weights)
        moved = {name: value.clone() for name, value in self.parameters.items()}
        for update, weight in zip(updates, weights, strict=True):
            for name, value in moved.items():
                value.add_(update[name], alpha=weight / total)
        if not is_finite(moved):
            raise RunFailedError(
                f"Version {self.version + 1} is not finite: the run diverged. Lower training.learning-rate and resume."
            )
        self.parameters = moved
        self.version += 1
        self._broadcast = None
