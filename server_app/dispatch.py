"""The table of tasks in flight: which message went where, and which answer belongs to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from federation.errors import RefusalCode, RefusalError
from server_app.grid_link import Reply
from server_app.progress import OpenTask

TRAINING_KINDS = ("train", "train.release")
DECISION_KINDS = ("train.release", "train.discard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One task that was sent.

    Attributes:
        message_id: Flower's id of the message.
        node_id: the node it went to.
        hospital_id: the hospital behind the node; empty for a query to a node that has not enrolled yet.
        kind: "train", "train.release", "train.discard", "evaluate" or "query".
        model_version: version of the model that was sent.
        sent_at: the engine's time when it was sent, in seconds.
        split: what an evaluation is asked to score.
        number: of the task in this run.
        began_at: of a release or discard: when the training task before it was sent; else as `sent_at`.
    """

    message_id: str
    node_id: int
    hospital_id: str
    kind: str
    model_version: int
    sent_at: float
    split: str = ""
    number: int = 0
    began_at: float = 0.0

    @classmethod
    def of(cls, task: OpenTask) -> Dispatch:
        """Return `task` as a checkpoint has kept it, of which no message is on the way."""
        return cls(
            message_id="",
            node_id=0,
            hospital_id=task.hospital_id,
            kind=task.kind,
            model_version=task.version,
            sent_at=task.sent_at,
            split=task.split,
            number=task.number,
            began_at=task.began_at,
        )

    def as_open_task(self) -> OpenTask:
        """Return what a checkpoint keeps of it."""
        return OpenTask(
            number=self.number,
            hospital_id=self.hospital_id,
            kind=self.kind,
            version=self.model_version,
            split=self.split,
            sent_at=self.sent_at,
            began_at=self.began_at,
        )


class InFlight:
    """Tasks whose answer has not come; at most one per node.

    A decision that was lost with a node is owed to its hospital, which keeps the result: it stays here until it is sent
    again. An owed one is waited for like any open task, until `stop_waiting_for` says otherwise.
    """

    def __init__(self) -> None:
        """Build an empty table."""
        self._open: dict[str, Dispatch] = {}
        self._owed: dict[str, Dispatch] = {}
        self._unawaited: set[str] = set()
        self._answered: set[str] = set()

    def __iter__(self) -> Iterator[Dispatch]:
        """Iterate over the open tasks, owed ones included."""
        return iter([*self._open.values(), *self._owed.values()])

    def __len__(self) -> int:
        """Return the number of tasks that are waited for."""
        return len(self._awaited)

    @property
    def message_ids(self) -> list[str]:
        """The ids to ask answers for."""
        return list(self._open)

    @property
    def busy_nodes(self) -> frozenset[int]:
        """Nodes with an open task."""
        return frozenset(dispatch.node_id for dispatch in self._open.values())

    @property
    def busy_hospitals(self) -> frozenset[str]:
        """Hospitals with an open task, also when they have moved to another node since, or that are owed a decision."""
        return frozenset(dispatch.hospital_id for dispatch in self)

    @property
    def owed(self) -> list[Dispatch]:
        """The decisions that are owed, sorted by hospital; each `sent_at` is the time since when."""
        return [self._owed[name] for name in sorted(self._owed)]

    def owe(self, dispatch: Dispatch) -> None:
        """Remember a decision until its hospital can be told again."""
        self._owed[dispatch.hospital_id] = dispatch

    def stop_waiting_for(self, hospital_id: str) -> None:
        """Remember what `hospital_id` is owed, but do not count it as a task that anybody waits for."""
        self._unawaited.add(hospital_id)

    def is_awaited(self, hospital_id: str) -> bool:
        """Return whether what `hospital_id` is owed counts as a task that is waited for."""
        return hospital_id in self._owed and hospital_id not in self._unawaited

    def settle_debt(self, hospital_id: str) -> None:
        """Forget what `hospital_id` is owed: it is told again, or given up."""
        del self._owed[hospital_id]
        self._unawaited.discard(hospital_id)

    @property
    def _awaited(self) -> list[Dispatch]:
        owed = (item for name, item in self._owed.items() if name not in self._unawaited)
        return [*self._open.values(), *owed]

    def give_up(self, now: float, limits_s: Mapping[str, float], answered: Collection[str]) -> list[Dispatch]:
        """Close and return the tasks older than the limit of their kind; a later answer to one is a duplicate.

        Args:
            now: the engine's time.
            limits_s: per kind.
            answered: ids of messages whose answers have come and wait to be read.
        """
        return self._close(
            dispatch
            for dispatch in self._open.values()
            if now - dispatch.sent_at > limits_s[dispatch.kind] and dispatch.message_id not in answered
        )

    def leave(self, hospital_id: str, node_id: int, answered: Collection[str] = ()) -> list[Dispatch]:
        """Close and return the tasks of `hospital_id` on nodes other than `node_id`, where it is now.

        Args:
            hospital_id: who has moved.
            node_id: to where.
            answered: ids of messages whose answers have come and wait to be read.
        """
        return self._close(
            dispatch
            for dispatch in self._open.values()
            if dispatch.hospital_id == hospital_id
            and dispatch.node_id != node_id
            and dispatch.message_id not in answered
        )

    def _close(self, dispatches: Iterable[Dispatch]) -> list[Dispatch]:
        closed = list(dispatches)
        for dispatch in closed:
            self._answered.add(self._open.pop(dispatch.message_id).message_id)
        return closed

    def count(self, *kinds: str) -> int:
        """Return the number of tasks of `kinds` that are waited for."""
        return sum(dispatch.kind in kinds for dispatch in self._awaited)

    def sort(self, numbers: Sequence[int]) -> None:
        """Put the tasks with these `numbers` first, in this order: the order in which answers are asked for."""
        place = {number: index for index, number in enumerate(numbers)}
        ordered = sorted(self._open.values(), key=lambda dispatch: place.get(dispatch.number, len(place)))
        self._open = {dispatch.message_id: dispatch for dispatch in ordered}

    def add(self, dispatch: Dispatch) -> None:
        """Remember a task that was sent."""
        self._open[dispatch.message_id] = dispatch

    def settle(self, reply: Reply) -> Dispatch:
        """Return and close the task that `reply` answers.

        Raises:
            RefusalError: it answers no open task, or comes from another node than was asked; the task stays open.
        """
        answered = reply.answered
        dispatch = self._open.get(answered)
        if dispatch is None:
            code = RefusalCode.DUPLICATE_REPLY if answered in self._answered else RefusalCode.UNKNOWN_MESSAGE
            raise RefusalError(code, f"Expected an answer to one of {len(self._open)} open tasks, found {answered!r}.")
        if reply.content is not None and reply.node_id != dispatch.node_id:
            raise RefusalError(
                RefusalCode.UNKNOWN_NODE, f"Expected an answer of node {dispatch.node_id}, found node {reply.node_id}."
            )
        self._answered.add(answered)
        return self._open.pop(answered)
