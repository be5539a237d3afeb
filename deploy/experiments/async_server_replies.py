"""A grid that holds nothing: it forgets what it is given to send, and reads every answer from a file when asked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from deploy.experiments.noop_app import EXAMPLES, INFO
from federation.config import ModelConfig
from federation.models import build_empty_model
from federation.parameters import Parameters
from federation.records.answers import ModelUpdate, encode_enrolment, encode_model_update
from federation.records.fields import ARRAYS, CONFIG
from federation.records.tensors import encode_parameters

_SERVER, _RUN = 1, 1
_SCALE = 1e-3


class ManualClock:
    """A clock that moves only while somebody waits."""

    engine = "virtual"
    replays = False

    def __init__(self) -> None:
        """Start at zero."""
        self._now = 0.0

    def now(self) -> float:
        """Return the seconds waited so far."""
        return self._now

    def wait(self, at_most_s: float) -> None:
        """Let `at_most_s` seconds pass at once."""
        self._now += 0.0 if math.isinf(at_most_s) else at_most_s

    def set(self, now: float) -> None:
        """Go on from `now`."""
        self._now = now


@dataclass(frozen=True, slots=True)
class ReplyFile:
    """The arrays of one reply, as they travel, in a file.

    Attributes:
        path: of the bytes; the index lies beside it.
        index: name, dtype, shape and length of every array.
    """

    path: Path
    index: list[tuple[str, str, list[int], int]]

    @classmethod
    def write(cls, path: Path, parameters: Parameters) -> ReplyFile:
        """Write an update in the shape of `parameters`."""
        record = encode_parameters(draw_update(parameters, 0))
        index = [(key, array.dtype, list(array.shape), len(array.data)) for key, array in record.items()]
        path.write_bytes(b"".join(array.data for array in record.values()))
        path.with_suffix(".json").write_text(json.dumps(index), encoding="utf-8")
        return cls(path, index)

    @classmethod
    def open(cls, path: Path) -> ReplyFile:
        """Return the file at `path`, nothing of it read but the index."""
        return cls(path, json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))

    @property
    def size_bytes(self) -> int:
        """Bytes of the values, which are those of the model."""
        return sum(4 * math.prod(shape) for _, _, shape, _ in self.index)

    def read(self) -> ArrayRecord:
        """Return the arrays, read again each time."""
        record = ArrayRecord()
        with self.path.open("rb", buffering=0) as file:
            for key, dtype, shape, length in self.index:
                record[key] = Array(dtype=dtype, shape=tuple(shape), stype="numpy.ndarray", data=file.read(length))
        return record


class ReplyGrid(Grid):
    """Hospitals that have always finished: their answers are there as soon as they are asked for.

    Attributes:
        clock: follows the waits of the server.
        given: training answers handed over.
    """

    def __init__(self, replies: ReplyFile, *, hospitals: int, together: bool) -> None:
        """Build the grid.

        Args:
            replies: what every hospital answers to a training task.
            hospitals: how many there are.
            together: whether all answers that are asked for in one call come in one call; else one comes.
        """
        self.clock = ManualClock()
        self.given = 0
        self._replies = replies
        self._nodes = range(_SERVER + 1, _SERVER + 1 + hospitals)
        self._together = together
        self._open: dict[str, Message] = {}
        self._sent = 0
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = _RUN, _SERVER, 1

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """The one run."""
        return Run.create_empty(_RUN)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message from the server."""
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Remember who was asked for what, but none of the arrays."""
        return [self._note(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the answer to the first of `message_ids`, or to all of them."""
        known = [name for name in message_ids if name in self._open]
        return [self._answer(self._open.pop(name)) for name in (known if self._together else known[:1])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Return the answers to `messages`."""
        del timeout
        return self.pull_messages(list(self.push_messages(messages)))

    def _note(self, message: Message) -> str:
        self._sent += 1
        name = f"message-{self._sent}"
        kept = Message(
            RecordDict({CONFIG: message.content[CONFIG]}),
            dst_node_id=message.metadata.dst_node_id,
            message_type=message.metadata.message_type,
        )
        kept.metadata.__dict__["_message_id"] = name
        self._open[name] = kept
        return name

    def _answer(self, task: Message) -> Message:
        name = f"hospital-{task.metadata.dst_node_id:03d}"
        if task.metadata.message_type == "query":
            return Message(encode_enrolment(name, EXAMPLES, INFO), reply_to=task)
        version = int(str(task.content[CONFIG]["model-version"]))
        content = encode_model_update(
            ModelUpdate(hospital_id=name, model_version=version, examples=EXAMPLES, update={})
        )
        content[ARRAYS] = self._replies.read()
        self.given += 1
        return Message(content, reply_to=task)


def model_like(name: str) -> Parameters:
    """Return zeros in the shape of the model called `name` for the data that these hospitals say they have."""
    state = build_empty_model(ModelConfig.model_validate({"name": name}), INFO).state_dict()
    return {key: torch.zeros_like(value) for key, value in state.items()}


def draw_update(like: Parameters, seed: int) -> Parameters:
    """Return small random values in the shape of `like`."""
    stream = torch.Generator().manual_seed(seed)
    return {name: _SCALE * torch.randn(value.shape, generator=stream) for name, value in like.items()}
