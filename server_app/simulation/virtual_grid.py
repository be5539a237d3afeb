"""`VirtualGrid`: Flower's Grid in one process, with exact virtual time instead of processes, sockets and sleeping.

It runs the very same ServerApp and ClientApp objects as a deployment. A client computes when the clock reaches the end
of its task, so results depend on virtual time only; a task whose run ends first is never computed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from federation.errors import RunFailedError
from federation.records.tensors import payload_bytes
from server_app.simulation.handover import HandOver, by_reference, serialized
from server_app.simulation.timing import SiteTiming

_SERVER_NODE_ID = 1
_RUN_ID = 1
_UNAVAILABLE = 3
_NODE_LOST = 5
_NODE_LOST_AFTER_S = 60.0

ConfigScalar = bool | int | float | str
Tamper = Callable[[Message], Iterable[Message]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualSite:
    """One simulated node: its node configuration and its speed."""

    node_config: Mapping[str, ConfigScalar]
    timing: SiteTiming = field(default_factory=SiteTiming)


class VirtualClock:
    """Virtual seconds; waiting advances to the next event."""

    engine = "virtual"
    replays = True

    def __init__(self) -> None:
        """Start at zero with no events."""
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], bool]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def set(self, now: float) -> None:
        """Go to `now`, whatever is scheduled; what that makes late happens at the next wait, as of its own time."""
        self._now = now

    def schedule(self, delay_s: float, event: Callable[[], bool]) -> None:
        """Run `event` in `delay_s` virtual seconds; it returns whether a waiter should wake."""
        heapq.heappush(self._events, (self._now + delay_s, next(self._order), event))

    def wait(self, at_most_s: float) -> None:
        """Advance to the first moment at which an event wakes the waiter, at most by `at_most_s`.

        Events of the same moment all happen before the waiter wakes.

        Raises:
            RunFailedError: the wait is unbounded and nothing is scheduled, so it would never end.
        """
        end = self._now + max(0.0, at_most_s)
        while self._events and self._events[0][0] <= end:
            if self._happen(self._events[0][0]):
                return
        if end == float("inf"):
            raise RunFailedError("Waiting without a limit while nothing is in flight on the virtual clock.")
        self._now = end

    def _happen(self, moment: float) -> bool:
        """Let all events of `moment` happen, and be there or later; return whether any wakes the waiter."""
        now, self._now = self._now, moment
        wake = False
        while self._events and self._events[0][0] == moment:
            wake |= heapq.heappop(self._events)[2]()
        self._now = max(now, moment)
        return wake


class VirtualGrid(Grid):
    """An in-process grid of simulated hospitals.

    Attributes:
        clock: the virtual clock, which the server's engine finds here and follows.
    """

    def __init__(
        self,
        client_app: ClientApp,
        sites: Sequence[VirtualSite],
        run_config: Mapping[str, ConfigScalar],
        *,
        fidelity: bool = False,
        tamper: Tamper = lambda message: [message],
    ) -> None:
        """Build the grid.

        Args:
            client_app: the app that every node runs.
            sites: one per node; node ids count from 2 in this order.
            run_config: as Flower hands it to every app.
            fidelity: serialize every message as deployment does, instead of handing records over by reference.
            tamper: what the network makes of a reply: nothing, itself, twice itself, something else. For tests.
        """
        self.clock = VirtualClock()
        self._client_app = client_app
        self._sites = {_SERVER_NODE_ID + 1 + index: site for index, site in enumerate(sites)}
        self._contexts = {node_id: _context(node_id, site, run_config) for node_id, site in self._sites.items()}
        self._hand_over: HandOver = serialized if fidelity else by_reference
        self._tamper = tamper
        self._lost: set[int] = set()
        self._open: dict[str, Message] = {}
        self._arrived: dict[str, list[Message]] = {}
        self._numbers = itertools.count(1)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = _RUN_ID, _SERVER_NODE_ID, 1

    def set_run(self, run: Run) -> None:
        """Do nothing: a virtual grid knows one run."""

    @property
    def run(self) -> Run:
        """The one run, with no app bundle behind it."""
        return Run.create_empty(_RUN_ID)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message from the server."""
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are connected."""
        return [node_id for node_id in self._sites if node_id not in self._lost]

    def lose_node(self, node_id: int) -> None:
        """Disconnect a node: its open tasks end in an error, as when Flower misses its heartbeat."""
        self._lost.add(node_id)

    def return_node(self, node_id: int) -> None:
        """Connect a lost node again."""
        self._lost.discard(node_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; as in Flower's simulation, unknown nodes make the returned list shorter."""
        return [self._send(message) for message in messages if message.metadata.dst_node_id in self.get_node_ids()]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived; an id that is unknown or was delivered before gives an error reply."""
        replies: list[Message] = []
        for message_id in message_ids:
            if message_id in self._arrived:
                replies.extend(self._arrived.pop(message_id))
            elif message_id not in self._open:
                replies.append(_unknown_id(message_id))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and wait for their replies, up to `timeout` virtual seconds."""
        waiting = list(self.push_messages(messages))
        end = self.clock.now() + (float("inf") if timeout is None else timeout)
        replies: list[Message] = []
        while waiting and self.clock.now() < end:
            self.clock.wait(end - self.clock.now())
            replies.extend(self.pull_messages(waiting))
            waiting = [message_id for message_id in waiting if message_id in self._open]
        return replies

    def _send(self, message: Message) -> str:
        message_id = f"message-{next(self._numbers)}"
        message.metadata.__dict__["_message_id"] = message_id
        task = self._hand_over(message)
        timing = self._sites[task.metadata.dst_node_id].timing
        delay_s = timing.transfer_s(payload_bytes(task.content)) + timing.compute_s(task.metadata.message_type)
        self._open[message_id] = task
        self.clock.schedule(delay_s, lambda: self._compute(message_id))
        self.clock.schedule(task.metadata.ttl, lambda: self._fail(message_id, _UNAVAILABLE, "expired"))
        return message_id

    def _compute(self, message_id: str) -> bool:
        """Let the client answer; the reply then needs its time on the link."""
        task = self._open.get(message_id)
        if task is None:
            return False
        node_id = task.metadata.dst_node_id
        if node_id in self._lost:
            self.clock.schedule(_NODE_LOST_AFTER_S, lambda: self._fail(message_id, _NODE_LOST, "node lost"))
            return False
        reply = self._hand_over(self._client_app(task, self._contexts[node_id]))
        size = payload_bytes(reply.content) if reply.has_content() else 0
        self.clock.schedule(self._sites[node_id].timing.transfer_s(size), lambda: self._arrive(message_id, reply))
        return False

    def _arrive(self, message_id: str, reply: Message) -> bool:
        if message_id not in self._open:
            return False
        delivered = list(self._tamper(reply))
        if not delivered:
            return False
        del self._open[message_id]
        self._arrived[message_id] = delivered
        return True

    def _fail(self, message_id: str, code: int, reason: str) -> bool:
        task = self._open.pop(message_id, None)
        if task is None:
            return False
        self._arrived[message_id] = [Message(Error(code, reason), reply_to=task)]
        return True


def _context(node_id: int, site: VirtualSite, run_config: Mapping[str, ConfigScalar]) -> Context:
    return Context(
        run_id=_RUN_ID,
        node_id=node_id,
        node_config=dict(site.node_config),
        state=RecordDict(),
        run_config=dict(run_config),
    )


def _unknown_id(message_id: str) -> Message:
    asked = Message(RecordDict(), dst_node_id=_SERVER_NODE_ID, message_type="query")
    asked.metadata.__dict__["_message_id"] = message_id
    return Message(Error(_UNAVAILABLE, "unknown or delivered before"), reply_to=asked)
