"""A history as its accounts see it: all Gaussian releases as one, and sampled steps by kind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from federation.accounting.events import GaussianRelease, History

# Sums of as many terms as memory holds stay finite below it.
_LARGEST_TERM = 1e290


class SampledKind(NamedTuple):
    """What steps of DP-SGD have in common.

    Attributes:
        noise_multiplier: standard deviation of the noise over the clip norm.
        sampling_probability: with which each unit enters a step, below 1.
    """

    noise_multiplier: float
    sampling_probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A history without what no account needs: order, and which step belonged to which release.

    Attributes:
        precision: sum of 1 / noise_multiplier^2 over all Gaussian releases and unsampled steps, which together are one
            Gaussian release with noise multiplier precision^-1/2 (arXiv 1905.02383, corollary 3.3).
        gaussians: number of those releases and steps.
        sampled: kinds of sampled steps with their number, sorted.
    """

    precision: float
    gaussians: int
    sampled: tuple[tuple[SampledKind, int], ...]


def compose(history: History) -> Composition:
    """Return what `history` amounts to; sampling with probability 1 is no sampling."""
    terms: list[float] = []
    gaussians = 0
    sampled: dict[SampledKind, int] = {}
    for event, count in history.counts.items():
        steps = count if isinstance(event, GaussianRelease) else count * event.steps
        if isinstance(event, GaussianRelease) or event.sampling_probability == 1:
            # A product, because the square of a tiny multiplier is zero and a power of it an error.
            inverse = 1 / event.noise_multiplier
            terms.append(steps * inverse * inverse)
            gaussians += steps
        else:
            kind = SampledKind(event.noise_multiplier, event.sampling_probability)
            sampled[kind] = sampled.get(kind, 0) + steps
    precision = math.fsum(terms) if max(terms, default=0.0) < _LARGEST_TERM else math.inf
    return Composition(precision=precision, gaussians=gaussians, sampled=tuple(sorted(sampled.items())))
