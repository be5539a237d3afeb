"""What is asked of a ledger and what it answers: a request to release, a reservation, the spend of a data set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from federation.accounting.accounts import ACCOUNTS, account_of
from federation.accounting.events import Event, History, Relation, Unit, event_as_dict, event_from_dict
from federation.accounting.mechanism import Mechanism
from federation.errors import LedgerError, PrivacyError

ACCOUNT_NAMES = tuple(ACCOUNTS)
GENERATOR_RUN = "aegis-cache"
"""Under which the ledger books the training of a generator of synthetic images."""

_LONGEST_NAME = 200
_MASKING_LENGTH = 37
NO_MASKING = f"{'none':<11} {0:08d} {0:016d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """One release that a client would like to make.

    Attributes:
        run_id: of the run that asks.
        message_id: of the message that asks, unique within the run; a repeated message is never charged twice.
        data_set: name of the data set that is released from. The same images must keep the same name for ever.
        mechanism: what protects the release: name, neighbouring relation, unit and clip norm.
        event: what the release costs; None for an unprotected release, after which no epsilon can be claimed.
        delta: at which epsilon is counted; at least 0 where nothing is protected.
        cap: the most epsilon that may be spent on the data set; at least 0 where nothing is protected.
        account: "linear", "rdp" or "pld": the one that the cap binds on.
        masking: what the release was masked with, from `describe_masking`: written down, and never counted as privacy.
    """

    run_id: str
    message_id: str
    data_set: str
    mechanism: Mechanism
    event: Event | None
    delta: float
    cap: float
    account: str
    masking: str = NO_MASKING

    def __post_init__(self) -> None:
        """Check names and bounds.

        Raises:
            LedgerError: a name is empty, too long, or holds characters that do not print.
            PrivacyError: delta, cap or account is impossible.
        """
        for field in ("run_id", "message_id", "data_set"):
            name = getattr(self, field)
            if not (isinstance(name, str) and 1 <= len(name) <= _LONGEST_NAME and name.isprintable()):
                raise LedgerError(f"Expected {field}={name!r} as 1 to {_LONGEST_NAME} printable characters.")
        if not (len(self.masking) == _MASKING_LENGTH and self.masking.isascii()):
            raise LedgerError(f"Expected masking={self.masking!r} as {_MASKING_LENGTH} ASCII characters.")
        if (self.event is None) != (self.mechanism.name == "none"):
            raise LedgerError(f"Expected an event exactly where there is a mechanism, found {self}.")
        account_of(self.account)
        if not (math.isfinite(self.cap) and self.cap >= 0 and 0 <= self.delta < 1):
            raise PrivacyError(f"Expected a finite cap={self.cap} >= 0 and 0 <= delta={self.delta} < 1.")
        if not math.isfinite(self.mechanism.clip_norm):
            raise PrivacyError(f"Expected a finite clip_norm={self.mechanism.clip_norm}.")
        if self.event is not None and not (self.cap > 0 and self.delta > 0):
            raise PrivacyError(f"Expected cap={self.cap} > 0 and delta={self.delta} > 0 for a protected release.")

    @property
    def message(self) -> tuple[str, str]:
        """What identifies the release: run and message."""
        return self.run_id, self.message_id

    def same_release(self, other: ReleaseRequest) -> bool:
        """Return whether both ask for the same event from the same data set by the same mechanism."""
        mine = (self.message, self.data_set, self.mechanism, self.event)
        return mine == (other.message, other.data_set, other.mechanism, other.event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A release that is paid for and durably written down.

    Attributes:
        seq: number of its row.
        request: what was booked.
        taken_up: whether a process that died had booked it, so that nothing was charged this time.
    """

    seq: int
    request: ReleaseRequest
    taken_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What a data set has cost so far, open and lost reservations included.

    Attributes:
        data_set: its name.
        delta: at which the epsilons hold.
        history: every protected release that was booked and not cancelled.
        releases: number of bookings that were not cancelled, unprotected ones included.
        unprotected: how many of them have no protection.
        committed: how many were released.
        lost: how many were left behind by processes that died, and stay spent.
        protections: relations and units that occur among the protected ones.
        linear: epsilon of `history` by the sum of epsilons.
        rdp: epsilon of `history` by Renyi DP.
        pld: epsilon of `history` by privacy loss distributions.
    """

    data_set: str
    delta: float
    history: History
    releases: int
    unprotected: int
    committed: int
    lost: int
    protections: tuple[tuple[Relation, Unit], ...]
    linear: float
    rdp: float
    pld: float

    @property
    def claimable(self) -> bool:
        """Whether these epsilons bound everything released: not after an unprotected release or over mixed units."""
        return self.unprotected == 0 and len(self.protections) <= 1

    def epsilon(self, account: str) -> float:
        """Return the epsilon of the protected releases by `account`, whether or not it can be claimed for all.

        Raises:
            PrivacyError: the account is unknown.
        """
        return {name: float(getattr(self, name)) for name in ACCOUNT_NAMES}[account_of(account).name]


def request_as_dict(request: ReleaseRequest) -> dict[str, Any]:
    """Return `request` as JSON-able scalars and tables under kebab-case keys."""
    mechanism = request.mechanism
    return {
        "run": request.run_id,
        "message": request.message_id,
        "data-set": request.data_set,
        "mechanism": {
            "name": mechanism.name,
            "relation": mechanism.relation.value,
            "unit": mechanism.unit.value,
            "clip-norm": mechanism.clip_norm,
        },
        "event": None if request.event is None else event_as_dict(request.event),
        "delta": request.delta,
        "cap": request.cap,
        "account": request.account,
        "masking": request.masking,
    }


def describe_masking(mode: str, size: int, cache: str) -> str:
    """Return what the ledger says of masking, of the same length whatever it is: a row's size tells nothing.

    Args:
        mode: of masking, at most 11 characters.
        size: synthetic images, below 10^8.
        cache: digest of the cache, hexadecimal; its first 16 digits are kept.
    """
    return f"{mode:<11} {size:08d} {cache[:16]:<16}"


def request_from_dict(content: Mapping[str, Any]) -> ReleaseRequest:
    """Return the request that `request_as_dict` turned into `content`; more keys may stand beside it.

    Raises:
        LedgerError: something is missing, of another type or out of bounds.
    """
    try:
        mechanism, event = content["mechanism"], content["event"]
        return ReleaseRequest(
            run_id=content["run"],
            message_id=content["message"],
            data_set=content["data-set"],
            mechanism=Mechanism(
                name=mechanism["name"],
                relation=Relation(mechanism["relation"]),
                unit=Unit(mechanism["unit"]),
                clip_norm=mechanism["clip-norm"],
            ),
            event=None if event is None else event_from_dict(event),
            delta=content["delta"],
            cap=content["cap"],
            account=content["account"],
            # Rows from before masking was recorded lack it.
            masking=content.get("masking", NO_MASKING),
        )
    except (KeyError, TypeError, ValueError, AttributeError, PrivacyError) as error:
        raise LedgerError(f"Expected a reservation's fields, found {error!r}.") from error
