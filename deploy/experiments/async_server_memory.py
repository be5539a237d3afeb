"""How much memory the server takes while replies come in, counted in models, in a process of its own.

Run as a program (`python -m deploy.experiments.async_server_memory SETTINGS`): what a process has touched before would
hide what it touches later. The replies come from a file, one at a time; what Flower's own transport takes while it
receives one is not the server's and is not in it. Read next: `deploy.experiments.async_server`.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict

from deploy.experiments.async_server_replies import ReplyFile, ReplyGrid, model_like
from deploy.experiments.cells import Result
from federation.config import Configuration, flatten, parse_configuration
from server_app.main import app as server_app

_SAMPLED_EVERY_S = 0.001
_KIB = 1024
_WARM_UP = "mlp"
# glibc keeps large blocks that were freed, and the more the larger they were, unless it is told from when on not to.
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "131072", "OMP_NUM_THREADS": "1"}
_BASE = {
    "run.central-evaluation": False,
    "run.hospital-evaluation": False,
    "run.allow-silent-hospitals": True,
    "run.keep-checkpoints": 1,
    "aggregation.max-staleness": 1000,
}


def measure_memory(settings: dict[str, Any], folder: Path) -> Result:
    """Return the peaks of servers in processes of their own, one for each number of hospitals.

    Args:
        settings: `model`, `hospitals`, and the `configuration` of the rule.
        folder: on a volume with room for as many updates as there are hospitals.

    Returns:
        `cases`, one for each number of hospitals, whose replies come one at a time; and `together`, of the smallest
        number, whose replies are all there at once.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="memory-") as place:
        files = {name: Path(place) / f"{name}.bin" for name in (_WARM_UP, settings["model"])}
        for name, path in files.items():
            ReplyFile.write(path, model_like(name))

        def run(hospitals: int, *, together: bool) -> dict[str, float]:
            per_version = settings["configuration"].get("aggregation.buffer-size", 1)
            synchronous = settings["configuration"]["aggregation.rule"] == "fedavg"
            asked = {
                "folder": place,
                "warm_up": str(files[_WARM_UP]),
                "replies": str(files[settings["model"]]),
                "hospitals": hospitals,
                "together": together,
                "configuration": {
                    **settings["configuration"],
                    "model.name": settings["model"],
                    "aggregation.rounds": 1 if synchronous else hospitals // per_version,
                },
            }
            command = [sys.executable, "-m", "deploy.experiments.async_server_memory", json.dumps(asked)]
            finished = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **_ALLOCATOR}
            )
            found: dict[str, float] = json.loads(finished.stdout)
            return {"hospitals": hospitals, **found}

        cases = [run(hospitals, together=False) for hospitals in settings["hospitals"]]
        return {"cases": cases, "together": run(min(settings["hospitals"]), together=True)}


def measure(settings: dict[str, Any]) -> dict[str, float]:
    """Return the peak of this process while it runs a whole session, above what it was before the model was made.

    A small federation goes before, so that code and libraries are loaded when counting begins.

    Args:
        settings: `replies` and `warm_up`, files of one reply each, `hospitals`, `together` and `configuration`.

    Returns:
        `model_bytes`; `peak_models`, the growth of the resident set's high-water mark in models; `private_models`, the
        growth of the largest private part that was seen, so without pages of mapped files; `before_mib`, `peak_mib` of
        the whole process; `replies` that were read.
    """
    _run_session(settings, ReplyFile.open(Path(settings["warm_up"])), _WARM_UP)
    gc.collect()
    replies = ReplyFile.open(Path(settings["replies"]))
    before = read_memory()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: forget the high-water mark.
    with _watched() as seen:
        read = _run_session(settings, replies, settings["configuration"]["model.name"])
    peak = read_memory()["VmHWM"]
    return {
        "model_bytes": replies.size_bytes,
        "peak_models": (peak - before["VmRSS"]) / replies.size_bytes,
        "private_models": (max(seen) - before["RssAnon"]) / replies.size_bytes,
        "before_mib": before["VmRSS"] / _KIB**2,
        "peak_mib": peak / _KIB**2,
        "replies": read,
    }


def read_memory() -> dict[str, int]:
    """Return what Linux says about the memory of this process, in bytes by name."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    pairs = (line.split(":") for line in lines if line.startswith(("Vm", "Rss")))
    return {name: int(value.split()[0]) * _KIB for name, value in pairs}


@contextmanager
def _watched() -> Iterator[list[int]]:
    """Collect the private memory of the process in the background."""
    seen, done = [read_memory()["RssAnon"]], threading.Event()

    def look() -> None:
        while not done.wait(_SAMPLED_EVERY_S):
            seen.append(read_memory()["RssAnon"])

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def _run_session(settings: dict[str, Any], replies: ReplyFile, model: str) -> int:
    """Run a federation by the shipped server and return how many replies it was given."""
    with tempfile.TemporaryDirectory(dir=settings["folder"], prefix="memory-") as place:
        own = {**_BASE, **settings["configuration"], "run.root": place, "model.name": model}
        flat = flatten(parse_configuration({**flatten(Configuration()), **own}))
        grid = ReplyGrid(replies, hospitals=settings["hospitals"], together=settings["together"])
        server_app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(flat)))
    return grid.given


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(json.loads(sys.argv[1]))))
