"""How often synthetic images cross a line that held-out images cross rarely, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NORMAL_QUANTILE = 1.959963984540054

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """Shares beyond a line, of synthetic images and of held-out ones.

    Attributes:
        synthetic_share: of the synthetic images.
        held_out_share: of held-out images that had no part in drawing the line; what honest images would show.
        excess: their difference; zero, up to chance, if synthetic images are as far from train as fresh ones.
        low: of the 95 % confidence interval of `excess`.
        high: of the 95 % confidence interval of `excess`.
        synthetic: number of synthetic images.
        held_out: number of held-out images that were counted.
    """

    synthetic_share: float
    held_out_share: float
    excess: float
    low: float
    high: float
    synthetic: int
    held_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many images of one class lie beyond the line.

    Attributes:
        synthetic_hits: synthetic images beyond it.
        synthetic: all synthetic images.
        held_out_hits: held-out images beyond it.
        held_out: all held-out images that were compared.
    """

    synthetic_hits: int
    synthetic: int
    held_out_hits: int
    held_out: int


def count_below(synthetic: Values, calibration: Values, measured: Values, *, quantile: float) -> Counts:
    """Return how many values lie at or below the `quantile` of `calibration`, all of shape (N,) with at least one.

    At it, because real data repeat themselves: where so many held-out images are copies that the quantile is 0, copies
    among the synthetic images must count as well.

    Args:
        synthetic: of synthetic images.
        calibration: of the half of the held-out images that draws the line.
        measured: of the other half.
        quantile: in [0, 1].
    """
    line = float(np.quantile(calibration, quantile))
    return Counts(
        synthetic_hits=int((synthetic <= line).sum()),
        synthetic=len(synthetic),
        held_out_hits=int((measured <= line).sum()),
        held_out=len(measured),
    )


def excess_of(counts: Sequence[Counts]) -> Excess:
    """Return the excess over all classes, each weighted by its synthetic images, so that class sizes do not matter.

    The interval combines Wilson's score intervals of all shares: Newcombe's method 10 for one class (Stat. Med. 17,
    1998, 873-890), its extension to weighted sums by Zou and Donner (Stat. Med. 27, 2008, 1693-1702) for several. It
    holds for the line as it was drawn, and takes images for independent, which those of one patient are not.
    """
    total = sum(count.synthetic for count in counts)
    synthetic_share = held_out_share = below = above = 0.0
    for count in counts:
        weight = count.synthetic / total
        ours, theirs = count.synthetic_hits / count.synthetic, count.held_out_hits / count.held_out
        (our_low, our_high) = wilson_interval(count.synthetic_hits, count.synthetic)
        (their_low, their_high) = wilson_interval(count.held_out_hits, count.held_out)
        synthetic_share += weight * ours
        held_out_share += weight * theirs
        below += weight**2 * ((ours - our_low) ** 2 + (their_high - theirs) ** 2)
        above += weight**2 * ((our_high - ours) ** 2 + (theirs - their_low) ** 2)
    excess = synthetic_share - held_out_share
    return Excess(
        synthetic_share=synthetic_share,
        held_out_share=held_out_share,
        excess=excess,
        low=excess - math.sqrt(below),
        high=excess + math.sqrt(above),
        synthetic=total,
        held_out=sum(count.held_out for count in counts),
    )


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, `hits` of `count` (Wilson, J. Am. Stat. Assoc. 22, 1927, 209-212)."""
    share, z = hits / count, _NORMAL_QUANTILE
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)
