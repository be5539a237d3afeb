"""How many updates per second go through the whole server: every one decoded, admitted, weighed, applied, made durable.

The hospitals answer at once and messages change hands as in a deployment. Everything that happens behind the grid is
taken out: the hospitals' work, Flower's serialization of messages and replies, and the virtual clock.
"""

from __future__ import annotations

import copy
import functools
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from deploy.experiments.async_server_replies import draw_update, model_like
from deploy.experiments.cells import Result
from deploy.experiments.noop_app import EXAMPLES, INFO
from federation.config import Configuration, flatten, parse_configuration
from federation.durable import write_durably
from federation.records.answers import ModelUpdate, encode_enrolment, encode_model_update
from federation.records.fields import ARRAYS, CONFIG
from federation.records.tensors import encode_parameters
from server_app.main import app as server_app
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualGrid, VirtualSite

_WRITES = 20
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_BASE = {
    "aggregation.rule": "fedasync",
    "aggregation.max-staleness": 1000,
    "model.name": "cnn",
    "run.central-evaluation": False,
    "run.hospital-evaluation": False,
    "run.allow-silent-hospitals": True,
    "run.keep-checkpoints": 1,
}

app = ClientApp()


@app.query()
def enrol(message: Message, context: Context) -> Message:
    """Answer with the shape of OrganAMNIST, which makes a model of 1.67 million parameters."""
    return Message(encode_enrolment(_name(context), EXAMPLES, INFO), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer with the same small random update every time, drawn and encoded once per process."""
    version = int(str(message.content[CONFIG]["model-version"]))
    answer = ModelUpdate(hospital_id=_name(context), model_version=version, examples=EXAMPLES, update={})
    content = encode_model_update(answer)
    content[ARRAYS] = ArrayRecord({key: copy.copy(array) for key, array in _encoded_update().items()})
    return Message(content, reply_to=message)


@functools.cache
def _encoded_update() -> ArrayRecord:
    return encode_parameters(draw_update(model_like("cnn"), 0))


def _name(context: Context) -> str:
    return f"hospital-{int(context.node_config['partition-id']):03d}"


class TimedGrid(VirtualGrid):
    """A virtual grid that adds up the time spent in it.

    Attributes:
        inside_s: seconds in its methods and in waiting on its clock, where hospitals compute.
        marks: at every training task that is sent, the time, and `inside_s` until then.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Build the grid as `VirtualGrid` does."""
        super().__init__(*arguments, **options)
        self.inside_s = 0.0
        self.marks: list[tuple[float, float]] = []
        setattr(self.clock, "wait", self._counted(self.clock.wait))  # noqa: B010 - mypy forbids it on an instance.

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes, on the grid's time."""
        return self._counted(super().get_node_ids)()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, on the grid's time."""
        sent = list(messages)
        if any(message.metadata.message_type == "train" for message in sent):
            self.marks.append((time.perf_counter(), self.inside_s))
        return self._counted(super().push_messages)(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return what has arrived, on the grid's time."""
        return self._counted(super().pull_messages)(message_ids)

    def _counted(self, call: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
        def counted(*arguments: _Given.args, **options: _Given.kwargs) -> _Made:
            started, before = time.perf_counter(), self.inside_s
            made = call(*arguments, **options)
            self.inside_s = before + time.perf_counter() - started  # Calls inside this one are not counted twice.
            return made

        return counted


def measure_rate(settings: dict[str, Any], folder: Path) -> Result:
    """Return updates per second of the server alone, and of everything, under FedAsync with a checkpoint per version.

    Counted between training tasks, from the first after every hospital has been asked once to the last, so without
    start-up and enrolment. What forcing the bytes of a checkpoint to the disk takes by itself is measured beside it.

    Args:
        settings: `hospitals`, `updates`, `optimizers`, `turns`.
        folder: on the volume that checkpoints are written to.
    """
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in settings["optimizers"]}
    for _ in range(settings["turns"]):
        for name, found in rates.items():
            with tempfile.TemporaryDirectory(dir=folder, prefix="rate-") as place:
                found.append(_run(settings, name, Path(place)))
    return {"optimizers": rates}


def _run(settings: dict[str, Any], optimizer: str, place: Path) -> dict[str, float]:
    own = {**_BASE, "aggregation.server-optimizer": optimizer, "aggregation.rounds": settings["updates"]}
    flat = flatten(parse_configuration({**flatten(Configuration()), **own, "run.root": str(place)}))
    sites = [
        VirtualSite(node_config={"partition-id": number}, timing=SiteTiming(train_s=60.0 + number))
        for number in range(settings["hospitals"])
    ]
    grid = TimedGrid(app, sites, flat, fidelity=True)
    server_app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(flat)))
    marks = grid.marks[settings["hospitals"] :]
    (began, inside_before), (ended, inside) = marks[0], marks[-1]
    checkpoint = max((place / "run" / "checkpoints").iterdir())
    return {
        "server_per_s": (len(marks) - 1) / (ended - began - (inside - inside_before)),
        "all_per_s": (len(marks) - 1) / (ended - began),
        "writes_per_s": _write_bare(checkpoint.read_bytes(), place / "bare", _WRITES),
    }


def _write_bare(content: bytes, path: Path, times: int) -> float:
    """Return how often per second `content` is written to a new file that is forced to the disk and renamed."""
    started = time.perf_counter()
    for _ in range(times):
        write_durably(path, content)
    return times / (time.perf_counter() - started)
