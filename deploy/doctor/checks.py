"""What a check is, what it finds, and how checks are carried out: one after another, each with a limit on its time."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Generic, TypeVar

SiteT = TypeVar("SiteT")
SiteT_contra = TypeVar("SiteT_contra", contravariant=True)

NETWORK_LIMIT_S = 5.0
"""Longest wait for any one answer over the network."""


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check saw.

    Attributes:
        status: what that means.
        found: in words, free of anything derived from images.
        mend: what to do in this case; empty for what the check always says.
    """

    status: Status
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finding beside what was looked for; what is printed.

    Attributes:
        id: of the check; it stays the same from version to version.
        title: what was looked at.
        status: how the check ended.
        found: what was there.
        expected: what should be.
        mend: what to do; empty where nothing need be done.
    """

    id: str
    title: str
    status: Status
    found: str
    expected: str
    mend: str

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[SiteT_contra]):
    """One question about a site.

    Attributes:
        id: kebab-case; it stays the same from version to version.
        title: what is looked at.
        expected: what should be.
        mend: what to do when it is not.
        look: finds out; it may raise what it does not expect.
        needs: checks without which this one makes no sense: it is skipped when one of them failed.
        limit_s: longest time it may take, in seconds.
        network: whether it opens a connection, which can be forbidden.
    """

    id: str
    title: str
    expected: str
    mend: str
    look: Callable[[SiteT_contra], Finding]
    needs: tuple[str, ...] = ()
    limit_s: float = 30.0
    network: bool = False

    def result(self, finding: Finding) -> Result:
        """Return `finding` beside what was looked for."""
        wrong = finding.status in (Status.WARNING, Status.FAILED)
        mend = (finding.mend or self.mend) if wrong else ""
        return Result(
            id=self.id, title=self.title, status=finding.status, found=finding.found, expected=self.expected, mend=mend
        )


def ok(found: str) -> Finding:
    """Return that all is well."""
    return Finding(status=Status.OK, found=found)


def warning(found: str, mend: str = "") -> Finding:
    """Return that somebody should know."""
    return Finding(status=Status.WARNING, found=found, mend=mend)


def failed(found: str, mend: str = "") -> Finding:
    """Return that this must be mended."""
    return Finding(status=Status.FAILED, found=found, mend=mend)


def skipped(found: str) -> Finding:
    """Return that there was nothing to look at."""
    return Finding(status=Status.SKIPPED, found=found)


def carry_out(
    checks: Iterable[Check[SiteT]], site: SiteT, *, network: bool = True, started: Callable[[str], None] | None = None
) -> Iterator[Result]:
    """Yield a result for every check, in order; nothing that a check raises gets out.

    Args:
        checks: in an order in which every check follows those it needs.
        site: what they look at.
        network: whether those that open connections are carried out.
        started: told the title of each check before it begins.
    """
    blocked: set[str] = set()
    for check in checks:
        if check.network and not network:
            yield check.result(skipped("not looked at: --no-network"))
            continue
        missing = _first_of(check.needs, blocked)
        if missing:
            blocked.add(check.id)
            yield check.result(skipped(f"not looked at: {missing} comes first"))
            continue
        if started is not None:
            started(check.title)
        result = check.result(_look(check, site))
        if result.status is Status.FAILED:
            blocked.add(check.id)
        yield result


def count(results: Iterable[Result]) -> dict[str, int]:
    """Return how many results there are of every status."""
    statuses = [result.status for result in results]
    return {status.value: statuses.count(status) for status in Status}


def _first_of(ids: Iterable[str], blocked: Collection[str]) -> str:
    return next((name for name in ids if name in blocked), "")


def _look(check: Check[SiteT], site: SiteT) -> Finding:
    """Return what `check` finds, in a thread of its own: one that hangs is left behind, and does not keep us here."""
    work = _Work(check.look, site)
    thread = Thread(target=work.run, name=f"check {check.id}", daemon=True)
    thread.start()
    thread.join(check.limit_s)
    if thread.is_alive():
        return failed(f"no result within {check.limit_s:g} s")
    return work.finding


class _Work(Generic[SiteT]):
    """One look, of which something remains whatever happens: of an error its kind and place, never its text."""

    def __init__(self, look: Callable[[SiteT], Finding], site: SiteT) -> None:
        self._look, self._site = look, site
        self.finding = failed("the check ended without a result")

    def run(self) -> None:
        """Look."""
        with self:
            self.finding = self._look(self._site)

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Keep what the look raised from going further."""
        if kind is not None:
            last = traceback.extract_tb(trace)[-1]
            self.finding = failed(
                f"the check itself broke: {kind.__name__} in {Path(last.filename).name}, line {last.lineno}",
                "Send this line, and the output of `aegis doctor --json`, to whoever looks after Aegis FL.",
            )
        return True
