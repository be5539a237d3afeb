"""The table of tasks in flight: which message went where, and which answer belongs to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from federation.errors import RefusalCode, RefusalError
from server_app.grid_link import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One task that was sent.

    Attributes:
        message_id: Flower's id of the message.
        node_id: the node it went to.
        hospital_id: the hospital behind the node; empty for a query to a node that has not enrolled yet.
        kind: "train", "evaluate" or "query".
        model_version: version of the model that was sent.
        sent_at: the engine's time when it was sent, in seconds.
        split: what an evaluation is asked to score.
    """

    message_id: str
    node_id: int
    hospital_id: str
    kind: str
    model_version: int
    sent_at: float
    split: str = ""


class InFlight:
    """Tasks whose answer has not come; at most one per node."""

    def __init__(self) -> None:
        """Build an empty table."""
        self._open: dict[str, Dispatch] = {}
        self._answered: set[str] = set()

    def __iter__(self) -> Iterator[Dispatch]:
        """Iterate over the open tasks."""
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        """Return the number of open tasks."""
        return len(self._open)

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
        """Hospitals with an open task, also when they have moved to another node since."""
        return frozenset(dispatch.hospital_id for dispatch in self._open.values())

    def give_up(self, now: float, limits_s: Mapping[str, float]) -> list[Dispatch]:
        """Close and return the tasks older than the limit of their kind; a later answer to one is a duplicate."""
        old = [dispatch for dispatch in self._open.values() if now - dispatch.sent_at > limits_s[dispatch.kind]]
        for dispatch in old:
            self._answered.add(self._open.pop(dispatch.message_id).message_id)
        return old

    def count(self, kind: str) -> int:
        """Return the number of open tasks of `kind`."""
        return sum(dispatch.kind == kind for dispatch in self._open.values())

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
