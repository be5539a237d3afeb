"""How sure a share is, and whether a count is what chance explains.

Not guaranteed: both take images for independent. Those of one batch share bins, and those of one patient look alike;
measure over several batches and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import binom, binomtest

from federation.occupancy import expected_verbatim_share

_CONFIDENCE = 0.95
_CENTRAL = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`hits` of `count`, with its 95 % Wilson interval.

    Attributes:
        hits: at least 0.
        count: what they are a share of.
        share: in [0, 1]; None where there is nothing to be a share of.
        low: of the interval.
        high: of the interval.
    """

    hits: int
    count: int
    share: float | None
    low: float
    high: float

    @classmethod
    def of(cls, hits: int, count: int) -> Share:
        """Return the share; of nothing, an unknown one anywhere in [0, 1].

        Raises:
            ValueError: not 0 <= hits <= count.
        """
        if count == 0 and hits == 0:
            return cls(hits=0, count=0, share=None, low=0.0, high=1.0)
        low, high = wilson_interval(hits, count)
        return cls(hits=hits, count=count, share=hits / count, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialCheck:
    """Whether a count lies where a binomial variable does.

    Attributes:
        count: what was found.
        trials: n.
        probability: p.
        low: smallest count of the central interval.
        high: largest count of the central interval.
    """

    count: int
    trials: int
    probability: float
    low: int
    high: int

    @property
    def passed(self) -> bool:
        """Whether the count lies in the interval, its ends included."""
        return self.low <= self.count <= self.high


def wilson_interval(hits: int, count: int, *, confidence: float = _CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's score interval of a share (J. Am. Stat. Assoc. 22, 1927, 209-212).

    Args:
        hits: successes.
        count: trials, at least 1.
        confidence: in (0, 1).

    Raises:
        ValueError: a number is out of bounds.
    """
    if not 0 <= hits <= count or count < 1 or not 0 < confidence < 1:
        raise ValueError(f"Expected 0 <= hits={hits} <= count={count} >= 1 and 0 < confidence={confidence} < 1.")
    interval = binomtest(hits, count).proportion_ci(confidence_level=confidence, method="wilson")
    return float(interval.low), float(interval.high)


def check_binomial(count: int, trials: int, probability: float, *, central: float = _CENTRAL) -> BinomialCheck:
    """Return whether `count` lies in the central interval of Binomial(trials, probability).

    The interval is the exact one: outside it, on either side, lies a probability of at most (1 - central) / 2.

    Args:
        count: what was found.
        trials: n, at least 1.
        probability: p, in [0, 1].
        central: probability of the interval, in (0, 1).

    Raises:
        ValueError: a number is out of bounds.
    """
    if not 0 <= count <= trials or trials < 1:
        raise ValueError(f"Expected 0 <= count={count} <= trials={trials} >= 1.")
    if not 0 <= probability <= 1 or not 0 < central < 1:
        raise ValueError(f"Expected 0 <= probability={probability} <= 1 and 0 < central={central} < 1.")
    low, high = binom.interval(central, trials, probability)
    return BinomialCheck(count=count, trials=trials, probability=probability, low=int(low), high=int(high))


def check_occupancy(alone: int, *, batches: int, real: int, synthetic: int, capacity: int) -> BinomialCheck:
    """Return whether as many real images were read verbatim as lie alone in their bin: the harness's self-test.

    Each of the batches * real images is alone with probability (1 - 1/k)^(B + M - 1), `federation.occupancy`.

    Args:
        alone: real images read verbatim, over all batches.
        batches: attacks of one kind.
        real: B, real images in each.
        synthetic: M, synthetic images in each.
        capacity: k, equally likely bins.

    Raises:
        ValueError: a number is out of bounds.
    """
    return check_binomial(alone, batches * real, expected_verbatim_share(real, synthetic, capacity))
