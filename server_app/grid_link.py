"""The only place that talks to Flower's grid: one message at a time, one per node, and never a blind zip of ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from federation.records.fields import Records
from federation.records.tensors import payload_bytes
from server_app.clock import Clock

_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One message that came back.

    Attributes:
        answered: id of the message it answers.
        node_id: the node it comes from; for an error that Flower itself made, not the node that was asked.
        content: its records, or None when it is an error.
        error_code: the code of the error; 0 when it is none.
    """

    answered: str
    node_id: int
    content: Records | None
    error_code: int


class GridLink:
    """Sends tasks, receives answers, counts payload bytes.

    Attributes:
        give_up_s: seconds after which a message without an answer is dead.
        bytes_down: payload bytes sent so far.
        bytes_up: payload bytes received so far.
    """

    def __init__(self, grid: Grid, clock: Clock, *, give_up_s: float) -> None:
        """Build a link over `grid`, whose waits follow `clock`, and whose messages live for `give_up_s` seconds."""
        self.give_up_s = give_up_s
        self._grid = grid
        self._clock = clock
        self.bytes_down = 0
        self.bytes_up = 0

    def node_ids(self) -> frozenset[int]:
        """Return the nodes that are connected now."""
        return frozenset(self._grid.get_node_ids())

    def names(self) -> dict[int, str]:
        """Return, for every node that is connected, the hospital for which its key was registered; empty for none."""
        return {node.node_id: node.name for node in self._grid.get_nodes()}

    def send(self, content: Records, node_id: int, message_type: str) -> str | None:
        """Send `content` to one node and return the message id, or None when the node is not known."""
        message = Message(content, dst_node_id=node_id, message_type=message_type, ttl=self.give_up_s)
        ids = list(self._grid.push_messages([message]))
        if len(ids) != 1 or not ids[0]:
            return None
        self.bytes_down += payload_bytes(content)
        return ids[0]

    def receive(self, message_ids: Iterable[str], wait_s: float) -> list[Reply]:
        """Return answers to `message_ids` that have arrived, waiting up to `wait_s` for the first.

        Not all of them: Flower loads every message that it hands over, so a few at a time are asked for, in the order
        given, and memory does not grow with the number of hospitals that answer at once.
        """
        pending = list(message_ids)
        end = self._clock.now() + wait_s
        while True:
            replies = self._pull(pending)
            if replies or self._clock.now() >= end:
                break
            self._clock.wait(end - self._clock.now())
        self.bytes_up += sum(payload_bytes(reply.content) for reply in replies if reply.has_content())
        return [_read(reply) for reply in replies]

    def _pull(self, pending: list[str]) -> list[Message]:
        """Return the answers of the first few of `pending` of which any has one."""
        for start in range(0, len(pending), _AT_ONCE):
            if replies := list(self._grid.pull_messages(pending[start : start + _AT_ONCE])):
                return replies
        return []


def _read(message: Message) -> Reply:
    return Reply(
        answered=message.metadata.reply_to_message_id,
        node_id=message.metadata.src_node_id,
        content=message.content if message.has_content() else None,
        error_code=message.error.code if message.has_error() else 0,
    )
