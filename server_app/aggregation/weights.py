"""How much an update weighs: a product of factors, each a small function whose default is 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

_SIZE_FACTORS: Mapping[str, Callable[[int], float]] = {
    "examples": float,
    "uniform": lambda _: 1.0,
    "sqrt": math.sqrt,
}


def size_factor(examples: int, weighting: str) -> float:
    """Return the factor for an update behind which `examples` images stand.

    Args:
        examples: at least 1.
        weighting: "examples" (as in FedAvg), "uniform", or "sqrt" (a small hospital stays audible).
    """
    return _SIZE_FACTORS[weighting](examples)
