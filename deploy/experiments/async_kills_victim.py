"""A server that runs a small federation until it kills itself with SIGKILL at a named point, or is killed.

Run as a program (`python -m deploy.experiments.async_kills_victim FOLDER SCENARIO`), it resumes a deployment. Read
next: `deploy.experiments.async_kills_watch`, which names the points and keeps the book, and
`deploy.experiments.async_kills`, which starts servers again and again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict

from deploy.experiments.async_kills_hospitals import app
from deploy.experiments.async_kills_watch import Book, watch_disk, watch_parts
from deploy.experiments.ledger_victim import Kill, Reaper
from federation.config import Configuration, flatten, parse_configuration
from server_app.main import app as server_app
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualGrid, VirtualSite

_TRAIN_S = (10.0, 13.0, 17.0, 55.0)
_BASE: dict[str, Any] = {
    "aggregation.rounds": 8,
    "aggregation.server-optimizer": "momentum",
    "aggregation.staleness": "exponential",
    "model.name": "mlp",
    "model.hidden-units": 2,
    "run.name": "run",
    "run.central-evaluation": False,
    "run.allow-silent-hospitals": True,
    "run.evaluate-every": 2,
    "run.hospitals": len(_TRAIN_S),
}
_FEDAVG = {"aggregation.rule": "fedavg", "aggregation.sample-count": 3, "aggregation.deadline-s": 30.0}
_BUFFERED = {"aggregation.rule": "buffered", "aggregation.buffer-size": 3}
SCENARIOS: dict[str, dict[str, Any]] = {
    "fedavg": _FEDAVG,
    "fedasync": {"aggregation.rule": "fedasync"},
    "buffered": _BUFFERED,
    "two-phase": {**_BUFFERED, "aggregation.release": "two-phase", "aggregation.max-staleness": 1},
    "semi-synchronous": {"aggregation.rule": "semi-synchronous", "aggregation.period-s": 20.0},
    "rare-checkpoints": {**_FEDAVG, "run.checkpoint-every": 3},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one federation lives, and how its hospitals behave when the server is gone.

    Attributes:
        root: holds the run's folder and the book.
        scenario: name of its settings.
        replays: whether hospitals stop with the server and begin again with it, as in a simulation.
    """

    root: Path
    scenario: str
    replays: bool

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.root / "run"

    @property
    def book(self) -> Path:
        """What the servers have seen, a line of JSON each."""
        return self.root / "book.jsonl"

    def configure(self, *, resume: bool) -> Configuration:
        """Return the configuration of a session."""
        own = {**_BASE, **SCENARIOS[self.scenario], "run.root": str(self.root), "run.resume": resume}
        return parse_configuration({**flatten(Configuration()), **own})


def live(place: Place, kill: Kill | None, *, resume: bool, nonce: str) -> None:
    """Be the server of one session, and write down the points that were passed if it ends.

    Args:
        place: whose server.
        kill: where to die; None to live.
        resume: whether the run goes on from its newest checkpoint.
        nonce: makes the updates of this session different from all others; empty: they only depend on their task.
    """
    place.root.mkdir(parents=True, exist_ok=True)
    reaper, book = Reaper(kill), Book(place.book, resumed=resume)
    watch_disk(reaper.reach)
    watch_parts(reaper.reach, book)
    flat = flatten(place.configure(resume=resume))
    sites = [
        VirtualSite(node_config={"partition-id": number, "nonce": nonce}, timing=SiteTiming(train_s=seconds))
        for number, seconds in enumerate(_TRAIN_S)
    ]
    grid = VirtualGrid(app, sites, flat)
    grid.clock.replays = place.replays
    book.begin()
    server_app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(flat)))
    book.at_work()
    (place.root / "passed.json").write_text(json.dumps(reaper.passed), encoding="utf-8")


if __name__ == "__main__":
    live(Place(root=Path(sys.argv[1]), scenario=sys.argv[2], replays=False), None, resume=True, nonce="program")
