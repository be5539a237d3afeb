"""Tasks out, answers in: matches every reply to its task, counts and logs what is refused."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from federation.errors import RefusalCode, RefusalError
from federation.records.answers import (
    Discarded,
    Enrolment,
    HospitalScores,
    ModelUpdate,
    Readiness,
    decode_discarded,
    decode_enrolment,
    decode_hospital_scores,
    decode_model_update,
    decode_training_answer,
)
from federation.records.fields import Records
from federation.records.tensors import payload_bytes
from server_app.admission import refusal_of
from server_app.clock import Clock
from server_app.dispatch import TRAINING_KINDS, Dispatch, InFlight
from server_app.grid_link import GridLink, Reply
from server_app.journal import Journal
from server_app.progress import OpenTask, Progress

_Kind = TypeVar("_Kind", Discarded, Enrolment, HospitalScores, ModelUpdate)
Content = Discarded | Enrolment | HospitalScores | ModelUpdate | Readiness
Answer = tuple[Dispatch, Content | RefusalError]

_DECODERS: Mapping[str, Callable[[Records], Content]] = {
    "query": decode_enrolment,
    "evaluate": decode_hospital_scores,
    "train": decode_training_answer,
    "train.release": decode_model_update,
    "train.discard": decode_discarded,
}


_QUERY_LIMIT_S = 300.0
_SMALL_TALK_BYTES = 65536


def expect(kind: type[_Kind], answer: Content | RefusalError) -> _Kind:
    """Return `answer` if it is of `kind`.

    Raises:
        RefusalError: it is a refusal.
        TypeError: it is another kind of answer, which a decoder by task never gives.
    """
    if isinstance(answer, RefusalError):
        raise answer
    if not isinstance(answer, kind):
        raise TypeError(f"Expected {kind.__name__}, found {type(answer).__name__}.")
    return answer


class Correspondence:
    """The server's post office.

    Attributes:
        progress: counters of the run, kept up to date.
        in_flight: the tasks whose answers have not been read.
        update_limit_bytes: the largest payload of an update; anything larger is refused unread.
    """

    def __init__(self, link: GridLink, clock: Clock, progress: Progress, journal: Journal) -> None:
        """Build a post office over `link` that keeps `progress` and `journal` up to date."""
        self._link = link
        self._clock = clock
        self.progress = progress
        self._journal = journal
        self._wall_started = time.monotonic() - progress.wall_s
        self._bytes_before = (progress.bytes_up, progress.bytes_down)
        self.in_flight = InFlight()
        self.update_limit_bytes = math.inf
        self._unread: deque[Reply | tuple[Dispatch, RefusalError]] = deque()

    def now(self) -> float:
        """Return the engine's time in seconds."""
        return self._clock.now()

    def node_ids(self) -> frozenset[int]:
        """Return the nodes that are connected now."""
        return self._link.node_ids()

    def names(self) -> dict[int, str]:
        """Return, for every node that is connected, the hospital for which its key was registered; empty for none."""
        return self._link.names()

    def note_totals(self) -> None:
        """Write time and traffic so far into the progress."""
        self.progress.elapsed_s = self._clock.now()
        self.progress.wall_s = time.monotonic() - self._wall_started
        self.progress.bytes_up = self._bytes_before[0] + self._link.bytes_up
        self.progress.bytes_down = self._bytes_before[1] + self._link.bytes_down

    def record(self, event: str, **fields: object) -> None:
        """Append one event to the journal."""
        self._journal.record(event, self._clock.now(), **fields)

    def ask(
        self,
        content: Records,
        *,
        node_id: int,
        kind: str,
        hospital_id: str = "",
        version: int = 0,
        split: str = "",
        number: int | None = None,
        began_at: float | None = None,
    ) -> bool:
        """Send one task and remember it; False when Flower does not know the node.

        Args:
            content: what to send.
            node_id: to whom.
            kind: Flower's message type.
            hospital_id: who is behind the node; empty where that is what is asked.
            version: of the model that the task is about.
            split: that an evaluation is about.
            number: of the task, where it has one from before a restart or goes on with an earlier one.
            began_at: when the first message of the task was sent, if this is not it.
        """
        message_id = self._link.send(content, node_id, kind)
        if message_id is None:
            return False
        if number is None and kind != "query":
            self.progress.tasks = number = self.progress.tasks + 1
        self.in_flight.add(
            Dispatch(
                message_id=message_id,
                node_id=node_id,
                hospital_id=hospital_id,
                kind=kind,
                model_version=version,
                sent_at=self._clock.now(),
                split=split,
                number=number or 0,
                began_at=self._clock.now() if began_at is None else began_at,
            )
        )
        if hospital_id:
            self.record("dispatch", task=kind, hospital=hospital_id, version=version, number=number)
        return True

    def receive(self, wait_s: float) -> Answer | None:
        """Return the next answer, waiting up to `wait_s` for one; None when none has come, or a stray one was refused.

        One at a time: what has arrived beside it stays in flight until it is read, so that a checkpoint written in
        between knows of it.
        """
        if not self._unread:
            self._fetch(wait_s)
        return self._settle(self._unread.popleft()) if self._unread else None

    def refuse(self, error: RefusalError, hospital_id: str | None) -> None:
        """Count and log one refusal."""
        self.progress.refuse(error.reason, hospital_id or None)
        self.record("refusal", hospital=hospital_id or None, reason=error.reason, detail=error.detail)
        self._journal.say("refused %s: %s", hospital_id or "an unknown sender", error)

    @property
    def spoken_for(self) -> frozenset[str]:
        """Hospitals with an open task, or one whose loss has not been read yet: neither can be asked for more."""
        unread = {item[0].hospital_id for item in self._unread if isinstance(item, tuple)}
        return self.in_flight.busy_hospitals | unread

    def open_tasks(self) -> list[OpenTask]:
        """Return what a checkpoint keeps of the tasks of which nobody has read how they ended, lost ones included."""
        lost = [item[0] for item in self._unread if isinstance(item, tuple)]
        return [task.as_open_task() for task in [*self.in_flight, *lost] if task.kind != "query"]

    def leave(self, hospital_id: str, node_id: int) -> None:
        """Give up what `hospital_id` was sent on other nodes than `node_id`, where it is now, and has not answered."""
        detail = f"The hospital has moved to node {node_id}."
        answered = {item.answered for item in self._unread if not isinstance(item, tuple)}
        self._note_lost(self.in_flight.leave(hospital_id, node_id, answered), lambda _: detail)

    def _fetch(self, wait_s: float) -> None:
        pending = self.in_flight.message_ids
        if not pending:
            self._clock.wait(wait_s)
            return
        replies = self._link.receive(pending, wait_s)
        self._unread.extend(replies)
        limit_s = self._link.give_up_s
        limits_s = {kind: min(limit_s, _QUERY_LIMIT_S) if kind == "query" else limit_s for kind in _DECODERS}
        answered = {reply.answered for reply in replies}
        lost = self.in_flight.give_up(self._clock.now(), limits_s, answered)
        self._note_lost(lost, lambda dispatch: f"No answer within {limits_s[dispatch.kind]:g} s.")

    def _note_lost(self, lost: Iterable[Dispatch], explain: Callable[[Dispatch], str]) -> None:
        """Queue a refusal for every task that is given up: a lost message must not block its hospital."""
        self._unread.extend((item, RefusalError(RefusalCode.NODE_LOST, explain(item))) for item in lost)

    def _settle(self, unread: Reply | tuple[Dispatch, RefusalError]) -> Answer | None:
        if isinstance(unread, tuple):
            return unread
        try:
            dispatch = self.in_flight.settle(unread)
        except RefusalError as error:
            self.refuse(error, None)
            return None
        if unread.content is None:
            return dispatch, refusal_of(unread.error_code)
        try:
            self._require_size(unread.content, dispatch.kind)
            return dispatch, _DECODERS[dispatch.kind](unread.content)
        except RefusalError as error:
            return dispatch, error

    def _require_size(self, content: Records, kind: str) -> None:
        limit = _SMALL_TALK_BYTES + (self.update_limit_bytes if kind in TRAINING_KINDS else 0)
        if (size := payload_bytes(content)) > limit:
            raise RefusalError(RefusalCode.TOO_LARGE, f"Expected at most {limit:.0f} bytes, found {size}.")
