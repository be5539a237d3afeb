"""Time as the engine sees it: the wall clock in a deployment, a virtual one in experiments."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """A source of seconds that only moves forward, once it has been set.

    Attributes:
        engine: what a summary calls a run on this clock: "flower" or "virtual".
        replays: whether hospitals stop with the server and begin again with it, so that a resumed run can send once
            more, as of their old times, the tasks that had not been answered.
    """

    engine: str
    replays: bool

    def now(self) -> float:
        """Return seconds since an arbitrary start."""

    def wait(self, at_most_s: float) -> None:
        """Return when something may have happened, at the latest after `at_most_s` seconds."""

    def set(self, now: float) -> None:
        """Go on from `now`, the time at which an earlier session of the run stopped; no event happens by it."""


@runtime_checkable
class CarriesClock(Protocol):
    """A grid that brings its own clock."""

    clock: Clock


class WallClock:
    """Real time; waiting is sleeping for one poll interval."""

    engine = "flower"
    replays = False

    def __init__(self, poll_interval_s: float = 0.1) -> None:
        """Build a clock whose waits return after `poll_interval_s` at the latest."""
        self._poll_interval_s = poll_interval_s
        self._zero = time.monotonic()

    def now(self) -> float:
        """Return seconds since the start of the run, without the time between its sessions."""
        return time.monotonic() - self._zero

    def set(self, now: float) -> None:
        """Go on from `now`."""
        self._zero = time.monotonic() - now

    def wait(self, at_most_s: float) -> None:
        """Sleep for the poll interval, or for `at_most_s` if that is shorter."""
        time.sleep(max(0.0, min(at_most_s, self._poll_interval_s)))


def clock_of(grid: object) -> Clock:
    """Return the clock that `grid` carries, or the wall clock."""
    return grid.clock if isinstance(grid, CarriesClock) else WallClock()
