"""Epsilon of a history, by three accounts side by side: each is proven, each is tighter than the one before.

`linear` adds up what single releases cost (`federation.accounting.linear`), `rdp` composes Renyi divergences
(`federation.accounting.rdp`), `pld` composes privacy loss distributions (`federation.accounting.pld`). How much fits
below a cap, and which noise it takes, is answered by `federation.accounting.inversion`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from federation.accounting.events import History
from federation.accounting.linear import LinearAccount
from federation.accounting.pld import PldAccount
from federation.accounting.rdp import RdpAccount
from federation.errors import PrivacyError


class Account(Protocol):
    """A way to say what a history has cost.

    Neighbouring relation and unit are those for which the events' noise multipliers were computed: replace-one is
    expressed by the doubled sensitivity in the multiplier. Sampled releases are add/remove only.

    Attributes:
        name: as configuration and policies name it.
    """

    name: str

    def epsilon(self, history: History, delta: float) -> float:
        """Return an epsilon at which the whole of `history` is (epsilon, delta)-private; 0 for an empty one.

        Raises:
            PrivacyError: `delta` is not between 0 and 1.
        """
        ...


_ACCOUNTS: tuple[Account, ...] = (LinearAccount(), RdpAccount(), PldAccount())
ACCOUNTS: Mapping[str, Account] = MappingProxyType({account.name: account for account in _ACCOUNTS})


def account_of(name: str) -> Account:
    """Return the account called `name`.

    Raises:
        PrivacyError: there is none of that name.
    """
    if name not in ACCOUNTS:
        raise PrivacyError(f"Expected an account named {', '.join(ACCOUNTS)}, found {name!r}.")
    return ACCOUNTS[name]
