"""Looks at everything the page shows; what cannot be read becomes a sentence, never an error.

Dear things (a ledger's epsilons, a log of megabytes) are read again only when their files have changed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from client_app.policy import SitePolicy, read_policy
from deploy.node.pause import is_paused, pause_path
from deploy.node.state import NodeState, node_folder, read_state
from deploy.policy import describe_policy, find_doubts
from deploy.status_page.certificates import read_expiry
from deploy.status_page.site_log import SiteLog, log_paths, read_log
from deploy.status_page.spending import Spending, file_stamp, ledger_stamp, read_spending
from deploy.trust.kit import Kit
from federation.errors import AegisError

_Found = TypeVar("_Found")
_FAILURES = (AegisError, OSError, ValueError, ArithmeticError, RuntimeError)
_SERVER_CERTIFICATE = "server.crt"
_UNPLACED = "Not known: the site policy, which says where the hospital's files lie, cannot be used."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What stands in the place of something that cannot be read.

    Attributes:
        sentence: what is wrong and what tells more; no text of an exception.
    """

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a hospital's files lie, as its policy said when it could last be used."""

    hospital_id: str
    state_dir: Path
    keys_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """That the stop switch is on, since when and by whom, as far as its file says."""

    since: float | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWords:
    """What the policy allows and what to think about, in sentences."""

    allows: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A hospital at one moment.

    Attributes:
        now: that moment, in seconds since 1970.
        hospital_id: whose; empty where neither policy nor kit says.
        consortium: from the kit; empty where there is none.
        node: as its supervisor last wrote it; None where none ever did.
        pause: None while the stop switch is off.
        log: of tasks.
        spending: from the ledger.
        policy: in words.
        certificates: when each ends, in seconds since 1970, by the name of what it is for.
    """

    now: float
    hospital_id: str
    consortium: str
    node: NodeState | Fault | None
    pause: Pause | None
    log: SiteLog | Fault
    spending: Spending | Fault
    policy: PolicyWords | Fault
    certificates: dict[str, float | Fault]


class _Memory(Generic[_Found]):
    """What was read last, and the stamp that its files had before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[object, _Found] | None = None

    def recall(self, stamp: object, read: Callable[[], _Found], sentence: str) -> _Found | Fault:
        """Return what `read` returned when the stamp was last this, or what it returns now; failures are not kept."""
        with self._lock:
            if self._last is not None and self._last[0] == stamp:
                return self._last[1]
            found = _try(read, sentence)
            if not isinstance(found, Fault):
                self._last = (stamp, found)
            return found


class Observer:
    """Looks at the hospital of one policy and kit, from any number of threads."""

    def __init__(self, policy: Path, kit: Path) -> None:
        """Look at nothing yet; either may be missing or damaged, now or later."""
        self._policy_path, self._kit_folder = policy, kit
        self._place: Place | None = None
        self._log_memory = _Memory[SiteLog]()
        self._ledger_memory = _Memory[Spending]()

    def place(self) -> Place | None:
        """Return where the hospital's files lie; None where its policy could not be used since this process began."""
        self._read_policy()
        return self._place

    def node(self) -> NodeState | Fault | None:
        """Return the node's state, or what keeps it from being read."""
        place = self.place()
        return _try(
            # A supervisor that cannot use the policy says so in its own folder.
            lambda: read_state(place.state_dir if place else _default_state_dir()),
            "The node's state file is damaged or closed to this page.",
        )

    def pause(self) -> Pause | None:
        """Return the stop switch's file; what it says may be unreadable, that it is there is what counts."""
        place = self.place()
        if place is None:
            return None
        on = _try(lambda: is_paused(place.state_dir), "")
        return _read_pause(place.state_dir) if on is not False else None

    def look(self, now: float) -> Snapshot:
        """Return everything at once."""
        policy = self._read_policy()
        place = self._place
        kit = _try(lambda: Kit.read(self._kit_folder), "")
        known = place.hospital_id if place else kit.hospital_id if isinstance(kit, Kit) else ""
        return Snapshot(
            now=now,
            hospital_id=known,
            consortium=kit.consortium if isinstance(kit, Kit) else "",
            node=self.node(),
            pause=self.pause(),
            log=self._log(place) if place else Fault(sentence=_UNPLACED),
            spending=self._spending(place) if place else Fault(sentence=_UNPLACED),
            policy=_in_words(policy) if isinstance(policy, SitePolicy) else policy,
            certificates=self._certificates(kit, place),
        )

    def _read_policy(self) -> SitePolicy | Fault:
        sentence = "The site policy cannot be used, so nothing leaves: `aegis policy check` says why."
        found = _try(lambda: read_policy(self._policy_path), sentence)
        if isinstance(found, SitePolicy):
            self._place = Place(
                hospital_id=found.hospital_id, state_dir=Path(found.state_dir), keys_dir=Path(found.keys_dir)
            )
        return found

    def _log(self, place: Place) -> SiteLog | Fault:
        paths = log_paths(place.state_dir, place.hospital_id)
        stamp = (place, *map(file_stamp, paths))
        sentence = "The hospital's log cannot be read by this page."
        return self._log_memory.recall(stamp, lambda: read_log(place.state_dir, place.hospital_id), sentence)

    def _spending(self, place: Place) -> Spending | Fault:
        folders = (place.state_dir, place.keys_dir, place.hospital_id)
        stamp = _try(lambda: (place, *ledger_stamp(*folders)), "")
        sentence = "The privacy ledger cannot be used: `aegis ledger verify` says why."
        return self._ledger_memory.recall(stamp, lambda: read_spending(*folders), sentence)

    def _certificates(self, kit: Kit | Fault, place: Place | None) -> dict[str, float | Fault]:
        """Return the authority's end, and the server's where a copy of its certificate lies beside the node's state."""
        own = self._kit_folder / (kit.ca if isinstance(kit, Kit) else "ca.crt")
        found = {"ca": _try(lambda: read_expiry(own), "The certificate of the consortium's authority cannot be read.")}
        copy = node_folder(place.state_dir) / _SERVER_CERTIFICATE if place else None
        if copy is not None and file_stamp(copy):
            found["server"] = _try(lambda: read_expiry(copy), "The copy of the server's certificate cannot be read.")
        return found


def _try(read: Callable[[], _Found], sentence: str) -> _Found | Fault:
    try:
        return read()
    except _FAILURES:
        return Fault(sentence=sentence)


def _read_pause(state_dir: Path) -> Pause:
    try:
        content = json.loads(pause_path(state_dir).read_text(encoding="utf-8"))
        since, by = content["since"], content["by"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Pause()
    return Pause(since=since if isinstance(since, int | float) else None, by=by if isinstance(by, str) else "")


def _in_words(policy: SitePolicy) -> PolicyWords:
    """Return the policy's sentences; where one quotes an error, that is left to `aegis policy check`."""
    doubts = _try(lambda: list(find_doubts(policy)), "")
    told = doubts if isinstance(doubts, list) else ["Not everything that the policy names can be looked at."]
    quoting = " cannot be used: "
    return PolicyWords(
        allows=tuple(describe_policy(policy)),
        doubts=tuple(
            f"{text.partition(quoting)[0]} cannot be used: `aegis policy check` says why." if quoting in text else text
            for text in told
        ),
    )


def _default_state_dir() -> Path:
    # Imports torch: only where there is no policy.
    from client_app.site import default_state_dir

    return default_state_dir()
