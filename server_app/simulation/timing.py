"""How long a simulated hospital takes: for computing, and for moving bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTiming:
    """Virtual seconds of one hospital.

    Attributes:
        train_s: for one training task.
        evaluate_s: for one evaluation task.
        bytes_per_s: of its link, each way.
    """

    train_s: float = 60.0
    evaluate_s: float = 5.0
    bytes_per_s: float = math.inf

    def compute_s(self, message_type: str) -> float:
        """Return the virtual seconds of a task of `message_type`; a query, a release and a discard cost nothing."""
        return {"train": self.train_s, "evaluate": self.evaluate_s}.get(message_type, 0.0)

    def transfer_s(self, size_bytes: int) -> float:
        """Return the virtual seconds for moving `size_bytes`."""
        return size_bytes / self.bytes_per_s

    def slower(self, factor: float) -> SiteTiming:
        """Return the timing of a hospital that computes `factor` times as long."""
        return SiteTiming(
            train_s=self.train_s * factor, evaluate_s=self.evaluate_s * factor, bytes_per_s=self.bytes_per_s
        )
