"""A client of the ledger that answers messages until it kills itself with SIGKILL at a named point.

The product holds no hooks for this: the client watches the calls by which the ledger reaches the operating system and
SQLite. Read next: `deploy.experiments.ledger_crashes`, which starts it again and again.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from client_app.ledger import Ledger, ReleaseRequest
from client_app.policy import SitePolicy
from client_app.releasing import Bill, release
from client_app.site import DeployedHospital, ReleaseKey
from federation.accounting.events import GaussianRelease, Relation, Unit
from federation.accounting.mechanism import Mechanism
from federation.config import DataConfig
from federation.errors import AegisError, AlreadyReleasedError
from federation.records.declarations import Declaration

HOSPITAL = "north"
DATA_SET = "scans"
DELTA = 1e-5
_MECHANISM = Mechanism(name="update-gaussian", relation=Relation.ZERO_OUT, unit=Unit.UPDATE, clip_norm=1.0)
EVENT = GaussianRelease(noise_multiplier=200.0)
_LARGEST_CAP = 1e6
_BILL = Bill(
    data_set=DATA_SET,
    mechanism=_MECHANISM,
    event=EVENT,
    delta=DELTA,
    cap=_LARGEST_CAP,
    budget=_LARGEST_CAP,
    account="linear",
)


class NoAnswerError(AegisError):
    """An answer failed on purpose while it was formed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Where a client dies.

    Attributes:
        birth: whether it is the first client, which makes the ledger.
        point: name of a point.
        hit: at which time of passing it, from 1.
    """

    birth: bool
    point: str
    hit: int


class Reaper:
    """Counts the points that a client passes, and ends its process at one of them."""

    def __init__(self, kill: Kill | None) -> None:
        """Wait for `kill`; None only counts."""
        self._kill = kill
        self.passed: Counter[str] = Counter()

    def reach(self, point: str) -> None:
        """Pass `point`, or die there."""
        self.passed[point] += 1
        kill = self._kill
        if kill and kill.point == point and kill.hit == self.passed[point]:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Site:
    """The folders of one hospital.

    Attributes:
        root: holds ledger, keys and outbox.
    """

    root: Path

    @property
    def folder(self) -> Path:
        """The ledger's volume."""
        return self.root / "volume"

    @property
    def keys(self) -> Path:
        """The key folder."""
        return self.root / "keys"

    @property
    def outbox(self) -> Path:
        """The file whose lines are what left the hospital."""
        return self.root / "outbox"

    @property
    def hospital(self) -> DeployedHospital:
        """The hospital as the product knows it."""
        data = {"id": DATA_SET, "name": "npz", "root": str(self.root)}
        policy = SitePolicy.model_validate(
            {"hospital-id": HOSPITAL, "state-dir": str(self.folder), "keys-dir": str(self.keys), "data": data}
        )
        return DeployedHospital(hospital_id=HOSPITAL, data=DataConfig(name="npz"), policy=policy)

    def open(self) -> Ledger:
        """Return the hospital's ledger."""
        return Ledger.open(self.folder, hospital_id=HOSPITAL, key_folder=self.keys)


def ask(message: str) -> ReleaseRequest:
    """Return the request of `message`."""
    return ReleaseRequest(
        run_id="run",
        message_id=message,
        data_set=DATA_SET,
        mechanism=_MECHANISM,
        event=EVENT,
        delta=DELTA,
        cap=_LARGEST_CAP,
        account="linear",
    )


def live(site: Site, messages: Sequence[str], kill: Kill | None, *, expire: bool, abandoned: str) -> None:
    """Be a client: answer `messages`, cancelling every fourth, and write down the points that were passed.

    Args:
        site: whose client.
        messages: to answer.
        kill: where to die; None to live.
        expire: whether to close what earlier clients left open.
        abandoned: a last message, reserved and left open for a later client to close; empty for none.
    """
    reaper = Reaper(kill)
    watch(reaper.reach)
    if expire:
        with site.open() as ledger:
            ledger.expire_stale()
    for number, message in enumerate(messages):
        try:
            answer(site, message, reaper, fail=number % 4 == 1)
        except (AlreadyReleasedError, NoAnswerError):
            continue
        reaper.reach("release before")
        let_go(site.outbox, message, reaper.reach)
        reaper.reach("release after")
    if abandoned:
        with site.open() as ledger:
            ledger.reserve(ask(abandoned))
    (site.root / "passed.json").write_text(json.dumps(reaper.passed), encoding="utf-8")


def answer(site: Site, message: str, reaper: Reaper, *, fail: bool) -> Declaration | None:
    """Answer `message` as a hospital does, through `client_app.releasing`; with `fail`, stop while noise is added.

    Raises:
        NoAnswerError: it was told to fail.
        AlreadyReleasedError: the message was answered before.
    """

    def form(declaration: Declaration | None) -> Declaration | None:
        reaper.reach("noise")
        if fail:
            raise NoAnswerError
        return declaration

    return release(site.hospital, ReleaseKey(run="run", message=message), _BILL, form)


def let_go(outbox: Path, message: str, reach: Callable[[str], None]) -> None:
    """Send the answer to `message` by appending a line with fresh noise; half a line is as good as sent."""
    line = f"{message} {secrets.token_hex(32)}\n".encode()
    descriptor = os.open(outbox, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line[: len(line) // 2])
    reach("release torn")
    os.write(descriptor, line[len(line) // 2 :])
    os.fsync(descriptor)
    os.close(descriptor)


def watch(reach: Callable[[str], None]) -> None:
    """Name every call of this process by which a ledger reaches the disk, before and after it."""
    owners = ((os, "open"), (os, "fsync"), (os, "fdatasync"), (os, "rename"), (os, "replace"), (fcntl, "flock"))
    for owner, name in owners:
        setattr(owner, name, _watched(getattr(owner, name), name, reach))
    write = os.pwrite

    def tear(descriptor: int, content: bytes, offset: int) -> int:
        write(descriptor, content[: len(content) // 2], offset)
        reach("pwrite anchor torn")
        return write(descriptor, content, offset)

    setattr(os, "pwrite", _watched(tear, "pwrite", reach))  # noqa: B010 - mypy knows os.pwrite as final.
    setattr(sqlite3, "connect", partial(sqlite3.connect, factory=_watched_connection(reach)))  # noqa: B010


def _watched(real: Callable[..., Any], name: str, reach: Callable[[str], None]) -> Callable[..., Any]:
    def call(target: int | str | Path, *rest: Any, **options: Any) -> Any:
        point = f"{name} {_label(target)}"
        reach(f"{point} before")
        result = real(target, *rest, **options)
        reach(f"{point} after")
        return result

    return call


def _label(target: int | str | Path) -> str:
    path = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
    known = path.name.startswith(HOSPITAL) or path.name in ("volume", "keys", "outbox")
    return path.name.removeprefix(f"{HOSPITAL}.") if known else "above"


def _watched_connection(reach: Callable[[str], None]) -> type[sqlite3.Connection]:
    class Watched(sqlite3.Connection):
        kind = ""

        def execute(self, statement: str, *rest: Any) -> sqlite3.Cursor:
            self.kind = rest[0][1] if statement.startswith("INSERT") else self.kind
            first, second = (statement.replace("=", " ") + " ").split(" ")[:2]
            point = f"sql {first} {self.kind if first in ('INSERT', 'COMMIT') else second}".rstrip()
            reach(f"{point} before")
            result = super().execute(statement, *rest)
            reach(f"{point} after")
            return result

        def close(self) -> None:
            reach("sql close before")
            super().close()
            reach("sql close after")

    return Watched
