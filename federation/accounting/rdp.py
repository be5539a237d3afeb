"""The account of Renyi differential privacy: dp-accounting's numbers, kept per kind of step so that asking is cheap."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from federation.accounting.bounds import require_delta
from federation.accounting.composition import Composition, SampledKind, compose
from federation.accounting.events import History
from federation.accounting.quiet import without_absl_warnings

if TYPE_CHECKING:
    from dp_accounting.rdp import RdpAccountant

# By which divergences are rounded up: more than a sum of 10^6 doubles loses, less than anyone can tell.
_ROUNDING = 1e-9

# Added per sampled step, times its probability: three times what dp-accounting loses to cancellation where a step costs
# next to nothing, and where it takes a negative divergence for no cost at all.
_STEP_ROUNDING = 1e-12


class RdpAccount:
    """Epsilon by Renyi differential privacy.

    Divergences of a Gaussian release: alpha / (2 noise_multiplier^2); of a Poisson-sampled step: arXiv 1908.10530,
    section 3.3. They add up over a history at each order (arXiv 1702.07476, proposition 1), and become epsilon by
    arXiv 2004.00010, proposition 12, at the best of dp-accounting's orders.

    Deviation: divergences are rounded up by a share of 1e-9, and by 1e-12 times sampling_probability per sampled step,
        so that neither the order of summation nor cancellation makes the result less than dp-accounting's or the truth.
    Guarantee: the whole history is (epsilon, delta)-private, for the neighbouring relation and unit behind its noise
        multipliers, add/remove for sampled releases; also when later releases were chosen after seeing earlier ones,
        as long as the noise of each was fixed beforehand.
    Not guaranteed: that it is the least epsilon: a single Gaussian release costs less by `gaussian_epsilon`.
    """

    name = "rdp"

    def epsilon(self, history: History, delta: float) -> float:
        """Return the epsilon of `history` at `delta`; 0 for an empty history.

        Raises:
            PrivacyError: `delta` is not between 0 and 1.
        """
        require_delta(delta)
        return rdp_epsilon(compose(history), delta)


def rdp_epsilon(composition: Composition, delta: float) -> float:
    """Return the epsilon of a history at `delta` by Renyi differential privacy."""
    from dp_accounting.rdp import compute_epsilon

    if not composition.gaussians and not composition.sampled:
        return 0.0
    orders = _orders()
    with np.errstate(over="ignore"):
        divergences = composition.precision / 2 * orders
        for kind, steps in composition.sampled:
            divergences = divergences + steps * _step_divergences(kind)
        divergences = divergences * (1 + _ROUNDING)
    epsilon, _ = compute_epsilon(orders.tolist(), divergences.tolist(), delta)
    return float(epsilon)


@lru_cache(maxsize=1)
def _orders() -> NDArray[np.float64]:
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    return np.array(DEFAULT_RDP_ORDERS, dtype=np.float64)


@lru_cache(maxsize=4096)
def _step_divergences(kind: SampledKind) -> NDArray[np.float64]:
    """Return the divergence of one step at each order, infinite where it could not be computed."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    accountant = _accountant()
    with without_absl_warnings():
        accountant.compose(PoissonSampledDpEvent(kind.sampling_probability, GaussianDpEvent(kind.noise_multiplier)))
    divergences: NDArray[np.float64] = np.maximum(accountant.divergences, 0.0)
    return divergences + _STEP_ROUNDING * kind.sampling_probability


def _accountant() -> RdpAccountant:
    """Return a fresh accountant that shows its divergences, which dp-accounting keeps to itself and its subclasses."""
    from dp_accounting.rdp import RdpAccountant

    class OpenAccountant(RdpAccountant):  # type: ignore[misc]  # dp-accounting ships no types
        @property
        def divergences(self) -> NDArray[np.float64]:
            return np.array(self._rdp, dtype=np.float64)

    return OpenAccountant()
