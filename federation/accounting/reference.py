"""Epsilon by dp-accounting, called in the plainest way: what measurements compare the accounts with, and nothing else.

It shares nothing that counts with the accounts: neither how a history is taken apart, nor caches, rounding or closed
forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from federation.accounting.events import Event, GaussianRelease, History
from federation.accounting.quiet import without_absl_warnings

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def reference_epsilon(history: History, delta: float, accountant: Literal["rdp", "pld"]) -> float:
    """Return what a fresh dp-accounting accountant says after `history`, with its defaults (add or remove one).

    Args:
        history: composed event by event, each with its count.
        delta: between 0 and 1.
        accountant: `RdpAccountant` or `PLDAccountant`.
    """
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    asked = RdpAccountant() if accountant == "rdp" else PLDAccountant()
    with without_absl_warnings():
        for event, count in history.counts.items():
            asked.compose(_as_dp_event(event), count)
    return float(asked.get_epsilon(delta))


def _as_dp_event(event: Event) -> DpEvent:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    noise = GaussianDpEvent(event.noise_multiplier)
    if isinstance(event, GaussianRelease):
        return noise
    return SelfComposedDpEvent(PoissonSampledDpEvent(event.sampling_probability, noise), event.steps)
