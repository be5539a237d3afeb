"""From the gradient of a planted layer, or a difference of its parameters, to one candidate a bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attacks.linear_leakage.bins import Bins
from attacks.linear_leakage.planted_network import Kind

Normalisation = Literal["bias", "direction"]
_EMPTY = 8.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Moved:
    """What became of a planted layer: a multiple of its gradient.

    Attributes:
        weight: float64, shape (k, n).
        bias: float64, shape (k,).
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> Moved:
        """Return both tensors as float64 arrays."""
        return cls(weight=weight.double().cpu().numpy(), bias=bias.double().cpu().numpy())


def read_bins(moved: Moved, bins: Bins, kind: Kind, *, by: Normalisation = "bias") -> NDArray[np.float64]:
    """Return one candidate a bin: float64, shape (k, n), NaN where the bin is empty.

    Cumulative bins: the gradient of row i sums over all images above its threshold, so that D_i = g_i - g_(i+1), with
    D_k = g_k, sums over the images of bin i (Fowl et al., arXiv 2110.13057, equation 4; the top bin is left out there).
    Sparse bins need no difference. With one image in the bin, D^W_i / D^b_i is that image (Phong et al., IEEE TIFS 13,
    2018, 1333-1345); with several, their mean weighted by what each adds to the gradient.

    Deviation: by "direction" the scale comes from what the bin says, x = D^W_i h_i / <v, D^W_i> with h_i in the middle
    of the bin. Weights are far smaller than biases, and so rounded far less, which decides in a difference of float32
    parameters.

    Args:
        moved: a multiple of the layer's gradient.
        bins: as they were planted.
        kind: as they were planted.
        by: what gives the scale.
    """
    weight, bias = moved.weight, moved.bias
    if kind == "cumulative":
        weight, bias = _neighbours(weight), _neighbours(bias)
    divisor = bias if by == "bias" else weight @ bins.direction / bins.middles
    largest = float(np.abs(moved.bias if by == "bias" else moved.weight @ bins.direction).max(initial=0.0))
    rounding = np.finfo(np.float32).eps * largest * (_EMPTY if kind == "sparse" else _EMPTY * len(bins) ** 0.5)
    found = np.full(weight.shape, np.nan)
    heard = np.abs(bias if by == "bias" else weight @ bins.direction) > rounding
    found[heard] = weight[heard] / divisor[heard, None]
    return found


def _neighbours(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row less the next one; the last as it is."""
    differences = values.copy()
    differences[:-1] -= values[1:]
    return differences
