"""Everything a coordinator's page, its metrics and `aegis coordinator show` tell, as it is at one moment.

Read next: `watch`, what of it needs a hand; `page`, how it is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from deploy.coordinator.run import Participant, Run
from deploy.coordinator.runs import RunEntry, Runs
from deploy.coordinator.superlink import Answer, Node
from deploy.status_page.certificates import read_expiry
from deploy.trust.consortium import Consortium, Hospital
from deploy.trust.consortium_folder import ConsortiumFolder
from federation.errors import ConfigurationError, DataError


class Connection(StrEnum):
    """How a hospital stands with the SuperLink.

    `UNKNOWN` is every hospital while the SuperLink does not answer, and one whose node it does not know.
    """

    ONLINE = "online"
    OFFLINE = "offline"
    NEVER = "never connected"
    UNREGISTERED = "not registered"
    REVOKED = "revoked"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One hospital of the consortium.

    Attributes:
        hospital: its id.
        connection: how it stands.
        connected: whether the SuperLink lists a node of it as online, revoked or not.
        since: since when that node is online, in seconds since 1970; None when it is not.
        last_contact: when it was last heard of, likewise; None when never, or when nobody knows.
        revoked: the day it was, ISO 8601; empty when it was not.
        part: what it does in the run that is shown; None when it has no part in it.
    """

    hospital: str
    connection: Connection
    connected: bool
    since: float | None
    last_contact: float | None
    revoked: str
    part: Participant | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How long one certificate is valid.

    Attributes:
        name: "server", "superlink" or "ca", as `aegis enrol show` calls them.
        ends: when its validity ends, in seconds since 1970; None when it cannot be read.
        trouble: why it cannot, in a sentence.
    """

    name: str
    ends: float | None
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What is known.

    Attributes:
        now: when, in seconds since 1970.
        consortium: its name; empty when it is not known.
        server: `host:port` as hospitals reach it.
        seats: every hospital that was ever enrolled, in that order.
        superlink: what the SuperLink said.
        certificates: of the server, of the SuperLink behind it, and of the authority.
        run: the run that is shown, the newest unless another was asked for; None before the first.
        runs: the newest runs, the newest first.
        troubles: what could not be read, a sentence each.
    """

    now: float
    consortium: str
    server: str
    seats: tuple[Seat, ...]
    superlink: Answer
    certificates: tuple[Certificate, ...]
    run: Run | None
    runs: tuple[RunEntry, ...]
    troubles: tuple[str, ...]


class Lookout:
    """Looks at one consortium and its runs, again and again."""

    def __init__(
        self, consortium: Path, runs: Path, ask: Callable[[], Answer], *, clock: Callable[[], float] = time.time
    ) -> None:
        """Look at the folder of a `consortium` and that of its `runs`, and `ask` the SuperLink; nothing is read yet."""
        self._consortium = ConsortiumFolder(path=consortium)
        self._runs = Runs(runs)
        self._ask = ask
        self._clock = clock

    def look(self, run: str = "") -> Overview:
        """Return what is known now, about the `run` of that name or the newest one.

        Raises:
            ConfigurationError: there is no run of that name.
        """
        troubles: list[str] = []
        consortium = self._read_consortium(troubles)
        listed = self._list_runs(troubles)
        shown = self._read_run(run or (listed[0].name if listed else ""), troubles, asked=bool(run))
        answer = self._ask()
        parts = {item.hospital: item for item in shown.participants} if shown else {}
        hospitals = consortium.hospitals if consortium else ()
        return Overview(
            now=self._clock(),
            consortium=consortium.name if consortium else "",
            server=f"{consortium.host}:{consortium.port}" if consortium else "",
            seats=tuple(_seat(hospital, answer, parts.get(hospital.id)) for hospital in hospitals),
            superlink=answer,
            certificates=tuple(self._read_certificates()),
            run=shown,
            runs=listed,
            troubles=tuple(troubles),
        )

    def _read_consortium(self, troubles: list[str]) -> Consortium | None:
        try:
            return self._consortium.read()
        except ConfigurationError as error:
            troubles.append(str(error))
            return None

    def _list_runs(self, troubles: list[str]) -> tuple[RunEntry, ...]:
        try:
            return self._runs.list()
        except OSError as error:
            troubles.append(f"The folder of runs cannot be read: {error.strerror}.")
            return ()

    def _read_run(self, name: str, troubles: list[str], *, asked: bool) -> Run | None:
        """Return the run called `name`; one that was not asked for may have been moved aside in between."""
        if not name:
            return None
        try:
            return self._runs.read(name)
        except ConfigurationError:
            if asked:
                raise
            return None
        except OSError as error:
            troubles.append(f"The run {name} cannot be read: {error.strerror}.")
            return None

    def _read_certificates(self) -> Iterator[Certificate]:
        folder = self._consortium
        places = {
            "server": folder.server / "current" / "server.crt",
            "superlink": folder.internal,
            "ca": folder.authority,
        }
        for name, path in places.items():
            try:
                yield Certificate(name=name, ends=read_expiry(path))
            except (OSError, DataError) as error:
                yield Certificate(name=name, ends=None, trouble=f"{path.name} cannot be read: {error}")


def _seat(hospital: Hospital, answer: Answer, part: Participant | None) -> Seat:
    ids = (hospital.node_id, hospital.previous_node_id, *(key.node_id for key in hospital.retired))
    nodes = [node for key in ids if (node := answer.nodes.get(key)) is not None]
    online = [node for node in nodes if node.status == "online"]
    heard = [
        *(answer.asked_at for _ in online),
        *(node.offline_at for node in nodes if node.status != "online" and node.offline_at is not None),
        *([part.answered] if part and part.answered is not None else []),
    ]
    return Seat(
        hospital=hospital.id,
        connection=_connection_of(hospital, nodes),
        connected=bool(online),
        since=max((node.online_at for node in online if node.online_at is not None), default=None),
        last_contact=max(heard, default=None),
        revoked=hospital.revoked,
        part=part,
    )


def _connection_of(hospital: Hospital, nodes: list[Node]) -> Connection:
    if hospital.revoked:
        return Connection.REVOKED
    if not hospital.node_id and not hospital.previous_node_id:
        return Connection.UNREGISTERED
    statuses = {node.status for node in nodes}
    if not statuses:
        return Connection.UNKNOWN
    if "online" in statuses:
        return Connection.ONLINE
    return Connection.OFFLINE if any(node.offline_at is not None for node in nodes) else Connection.NEVER
