"""A run of a deployment, followed through the files that the server writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.deployment import Deployment

Event = dict[str, Any]


class FollowedRun:
    """One `flwr run`; one that resumes another shares its folder.

    Attributes:
        run_id: Flower's.
        folder: where the server writes.
    """

    def __init__(self, deployment: Deployment, folder: Path, *, resumed: bool) -> None:
        self._deployment = deployment
        self.folder = folder
        self.run_id = ""
        self._before = len(self._read()) if resumed else 0

    def events(self, kind: str | None = None, **fields: object) -> list[Event]:
        """Return this run's events, or those of one kind and with these fields."""
        events = self._read()[self._before :]
        return [event for event in events if kind in (None, event["event"]) and fields.items() <= event.items()]

    def wait_for(self, kind: str, *, count: int = 1, **fields: object) -> None:
        """Wait until the log holds `count` events of this kind and with these fields, as long as it grows."""

        def is_there() -> bool:
            return len(self.events(kind, **fields)) >= count

        while not is_there():
            length = len(self._read())
            wait_until(
                lambda: is_there() or len(self._read()) > length,  # noqa: B023 - asked within this turn only
                f"{count} x {kind} {fields} in {self.folder / 'events.jsonl'}",
            )

    def wait_for_end(self) -> dict[str, Any]:
        """Wait until the server has ended and return its summary."""
        self.wait_for("finish")
        wait_until(lambda: not self._deployment.servers(), "the end of the ServerApp")
        return json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))

    def wait_for_status(self, status: str) -> None:
        """Wait until Flower says that the run is in `status`."""
        wait_until(lambda: self._status() == status, f"{status} as the status of {self.folder}", every_s=2.0)

    def stop(self) -> None:
        """`flwr stop` it."""
        self._deployment.flwr("stop", self.run_id, "aegis")

    def applied(self) -> list[Event]:
        """Return one row per update in the model as it is now, with its version and base version, oldest first.

        Versions that an earlier session made after the checkpoint from which it was resumed are no part of the model.
        """
        rows = []
        for events, until in _sessions(self._read()):
            for event in events:
                if event["event"] == "apply" and event["version"] <= until:
                    version = event["version"]
                    rows += [
                        row | {"version": version, "base": version - 1 - row["staleness"]} for row in event["updates"]
                    ]
        return rows

    def _status(self) -> str:
        listing = self._deployment.flwr("list", "aegis", "--run-id", self.run_id, "--format", "json")
        return json.loads(listing)["runs"][0]["status"]

    def _read(self) -> list[Event]:
        path = self.folder / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def _sessions(events: list[Event]) -> Iterator[tuple[list[Event], float]]:
    """Yield the events of every session of a run, and the version from which the next one went on."""
    starts = [index for index, event in enumerate(events) if event["event"] in ("start", "resume")]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        yield events[start:end], events[end]["version"] if end < len(events) else float("inf")


def require_applied_once(rows: list[Event], *, versions: int) -> None:
    """Check that every version was made once, and that no task and no hospital's work on a version counts twice."""
    numbers, work = [row["number"] for row in rows], [(row["hospital"], row["base"]) for row in rows]
    assert sorted({row["version"] for row in rows}) == list(range(1, versions + 1))
    assert len(set(numbers)) == len(numbers), numbers
    assert len(set(work)) == len(work), work
