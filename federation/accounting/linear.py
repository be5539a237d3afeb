"""The linear account: what single releases cost, added up. The most conservative, and the one everybody can follow."""

from __future__ import annotations

import math
from functools import lru_cache

from federation.accounting.bounds import require_delta
from federation.accounting.composition import compose
from federation.accounting.events import Event, GaussianRelease, History
from federation.accounting.gaussian import LARGEST_CLASSIC_EPSILON, classic_factor, gaussian_epsilon
from federation.accounting.pld import pld_epsilon
from federation.accounting.rdp import rdp_epsilon

# Far below any cap's digits: sums of decimal fractions come out as decimal fractions.
_DECIMALS = 12


class LinearAccount:
    """Epsilon as the sum of what each release costs at delta, never below the RDP account.

    A Gaussian release costs the epsilon of the classic formula, sqrt(2 ln(1.25 / delta)) / noise_multiplier, in four
    significant digits; where that exceeds 1 and the formula is unproven, 1 or the exact epsilon, whichever is more. A
    release of DP-SGD costs the smaller of its RDP and PLD epsilons at delta, both of which are proven for its steps.

    Deviation: basic composition bounds `releases` releases by the summed epsilon at `releases` times delta, not at
        delta. The RDP account bounds the history at delta itself, so the larger of the two numbers does as well.
    Guarantee: as for `federation.accounting.rdp.RdpAccount`.
    Not guaranteed: that the sum alone holds at delta, or that it is tight: at noise multiplier 24.22 and delta 1e-5 a
        release costs 0.2 of which 0.13 is needed, and 40 of them 8 where the other accounts say about 1.
    """

    name = "linear"

    def epsilon(self, history: History, delta: float) -> float:
        """Return the epsilon of `history` at `delta`; 0 for an empty history.

        Raises:
            PrivacyError: `delta` is not between 0 and 1.
        """
        require_delta(delta)
        total = math.fsum(count * release_cost(event, delta) for event, count in history.counts.items())
        return max(round(total, _DECIMALS), rdp_epsilon(compose(history), delta))


@lru_cache(maxsize=65_536)
def release_cost(event: Event, delta: float) -> float:
    """Return what the linear account charges for one release at `delta`."""
    if isinstance(event, GaussianRelease):
        return _gaussian_cost(event.noise_multiplier, delta)
    steps = compose(History.of([event]))
    return min(rdp_epsilon(steps, delta), pld_epsilon(steps, delta))


def _gaussian_cost(noise_multiplier: float, delta: float) -> float:
    exact = gaussian_epsilon(noise_multiplier, delta)
    classic = float(f"{classic_factor(delta) / noise_multiplier:.4g}")
    return max(exact, min(classic, LARGEST_CLASSIC_EPSILON))
