"""Runs of scripted hospitals on the virtual clock, and what tests read of them afterwards."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from federation.config import Configuration, flatten
from federation.models import build_model
from federation.parameters import Parameters, digest, read_parameters
from server_app.main import app as server_app
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import Tamper, VirtualGrid, VirtualSite
from server_app.summary import Summary
from tests.doubles import INFO, Hospitals, configure

# Every asynchronous rule, so set that three hospitals of different speeds make versions.
ASYNCHRONOUS: dict[str, dict[str, Any]] = {
    "fedasync": {"aggregation__rule": "fedasync"},
    "buffered": {"aggregation__rule": "buffered", "aggregation__buffer_size": 2},
    "semi-synchronous": {"aggregation__rule": "semi-synchronous", "aggregation__period_s": 25.0},
}


def seconds(*train_s: float) -> list[SiteTiming]:
    """Return hospitals that train for so long, and need a second to evaluate."""
    return [SiteTiming(train_s=value, evaluate_s=1.0) for value in train_s]


def run(
    folder: Path,
    timings: Sequence[SiteTiming],
    hospitals: Hospitals | None = None,
    *,
    tamper: Tamper = lambda message: [message],
    **settings: Any,
) -> Summary:
    """Run a federation whose hospitals need not all contribute."""
    settings = {"run__allow_silent_hospitals": True, **settings}
    return simulate(configure(folder, **settings), (hospitals or Hospitals()).app(), timings, tamper=tamper)


def run_on(
    configuration: Configuration,
    timings: Sequence[SiteTiming],
    hospitals: Hospitals,
    *,
    make: Callable[[ClientApp, list[VirtualSite], dict[str, Any]], VirtualGrid] = VirtualGrid,
) -> Summary:
    """Run a federation on the grid that `make` builds."""
    flat = dict(flatten(configuration))
    sites = [
        VirtualSite(node_config={"partition-id": index, "num-partitions": len(timings)}, timing=timing)
        for index, timing in enumerate(timings)
    ]
    grid = make(hospitals.app(), sites, flat)
    server_app(grid, Context(1, 1, {}, RecordDict(), dict(flat)))
    return read_summary(Path(configuration.run.root))


def read_summary(folder: Path) -> Summary:
    """Return the summary of the run below `folder`."""
    return Summary.model_validate_json((folder / "run" / "summary.json").read_text())


def events(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return the events of `kinds` in the log of the run below `folder`, in order."""
    lines = (folder / "run" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] in kinds]


def applied(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """Return the updates that made each version, as the log last says: a killed version may have been made again."""
    return {event["version"]: event["updates"] for event in events(folder, "apply")}


def staleness(folder: Path) -> list[list[tuple[str, int]]]:
    """Return hospital and staleness of the updates of each version."""
    return [[(row["hospital"], row["staleness"]) for row in rows] for _, rows in sorted(applied(folder).items())]


def final_parameters(folder: Path) -> Parameters:
    """Return the final model of the run below `folder`."""
    return safetensors.torch.load_file(folder / "run" / "model.safetensors")


def final_digest(folder: Path) -> str:
    """Return the digest of the final model."""
    return digest(final_parameters(folder))


def moved(folder: Path) -> float:
    """Return how far the run moved every parameter, which scripted hospitals do by the same step everywhere."""
    start = read_parameters(build_model(configure(folder).model, INFO, seed=0))
    end = final_parameters(folder)
    steps = torch.cat([(end[name] - value).flatten() for name, value in start.items()])
    assert float(steps.max() - steps.min()) < 1e-5
    return float(steps.mean())


def away(node_id: int, *, begins: float, ends: float = math.inf) -> Callable[..., VirtualGrid]:
    """Return what makes a grid on which `node_id` is not connected for a while."""

    def make(*arguments: Any) -> VirtualGrid:
        grid = VirtualGrid(*arguments)

        def leave() -> bool:
            grid.lose_node(node_id)
            return False

        def come_back() -> bool:
            grid.return_node(node_id)
            return False

        grid.clock.schedule(begins, leave)
        if ends < math.inf:
            grid.clock.schedule(ends, come_back)
        return grid

    return make


def dropping(kind: str, *node_ids: int) -> Tamper:
    """Return a network that loses the answers of `node_ids` to messages of `kind`."""

    def lose(message: Message) -> Iterable[Message]:
        lost = message.metadata.message_type == kind and message.metadata.src_node_id in node_ids
        return [] if lost else [message]

    return lose
