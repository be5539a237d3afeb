"""The norm that a privacy guarantee rests on: of several tensors together, in float64, and never above its bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from torch import Tensor

from federation.parameters import Parameters

# Scaling in float64 and rounding to float32 may lengthen a vector by 2^-24 of its length. Clipping to a bound shorter
# by 2^-20 keeps the released one within the bound itself, at no cost that could be measured.
_ROUNDING_MARGIN = 2.0**-20


def joint_norm(tensors: Iterable[Tensor]) -> float:
    """Return the L2 norm of all `tensors` as one vector, in float64 and with torch's pairwise sum."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))


def clip_jointly(tensors: Mapping[str, Tensor], clip_norm: float) -> Parameters:
    """Return float32 `tensors` scaled by min(1, clip_norm / norm), the norm taken over all of them.

    Guarantee: the L2 norm of what is returned is at most `clip_norm`, rounding included.

    Args:
        tensors: finite.
        clip_norm: L2, above 0.
    """
    bound = clip_norm * (1 - _ROUNDING_MARGIN)
    norm = joint_norm(tensors.values())
    if norm <= bound:
        return {name: value.clone() for name, value in tensors.items()}
    return {name: (value.double() * (bound / norm)).to(value.dtype) for name, value in tensors.items()}
