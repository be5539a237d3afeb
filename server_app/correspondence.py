"""Tasks out, answers in: matches every reply to its task, counts and logs what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from federation.errors import RefusalCode, RefusalError
from federation.records.answers import (
    Enrolment,
    HospitalScores,
    ModelUpdate,
    decode_enrolment,
    decode_hospital_scores,
    decode_model_update,
)
from federation.records.fields import Records
from server_app.admission import refusal_of
from server_app.clock import Clock
from server_app.dispatch import Dispatch, InFlight
from server_app.grid_link import GridLink, Reply
from server_app.journal import Journal
from server_app.progress import Progress

_Kind = TypeVar("_Kind", Enrolment, HospitalScores, ModelUpdate)
Content = Enrolment | HospitalScores | ModelUpdate
Answer = tuple[Dispatch, Content | RefusalError]

_DECODERS: Mapping[str, Callable[[Records], Content]] = {
    "query": decode_enrolment,
    "evaluate": decode_hospital_scores,
    "train": decode_model_update,
}


_QUERY_LIMIT_S = 300.0


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
        in_flight: the tasks that have not been answered.
    """

    def __init__(self, link: GridLink, clock: Clock, progress: Progress, journal: Journal) -> None:
        """Build a post office over `link` that keeps `progress` and `journal` up to date."""
        self._link = link
        self._clock = clock
        self.progress = progress
        self._journal = journal
        self._started = clock.now() - progress.elapsed_s
        self._wall_started = time.monotonic() - progress.wall_s
        self._bytes_before = (progress.bytes_up, progress.bytes_down)
        self.in_flight = InFlight()

    def now(self) -> float:
        """Return the engine's time in seconds."""
        return self._clock.now()

    def node_ids(self) -> frozenset[int]:
        """Return the nodes that are connected now."""
        return self._link.node_ids()

    def note_totals(self) -> None:
        """Write time and traffic so far into the progress."""
        self.progress.elapsed_s = self._clock.now() - self._started
        self.progress.wall_s = time.monotonic() - self._wall_started
        self.progress.bytes_up = self._bytes_before[0] + self._link.bytes_up
        self.progress.bytes_down = self._bytes_before[1] + self._link.bytes_down

    def record(self, event: str, **fields: object) -> None:
        """Append one event to the journal."""
        self._journal.record(event, self._clock.now() - self._started, **fields)

    def ask(
        self, content: Records, *, node_id: int, kind: str, hospital_id: str = "", version: int = 0, split: str = ""
    ) -> bool:
        """Send one task and remember it; False when Flower does not know the node."""
        message_id = self._link.send(content, node_id, kind)
        if message_id is None:
            return False
        self.in_flight.add(
            Dispatch(
                message_id=message_id,
                node_id=node_id,
                hospital_id=hospital_id,
                kind=kind,
                model_version=version,
                sent_at=self._clock.now(),
                split=split,
            )
        )
        if hospital_id:
            self.record("dispatch", task=kind, hospital=hospital_id, version=version)
        return True

    def collect(self, wait_s: float) -> list[Answer]:
        """Return the answers that have arrived, waiting up to `wait_s` for one; stray replies are refused."""
        pending = self.in_flight.message_ids
        if not pending:
            self._clock.wait(wait_s)
            return []
        answers = [self._settle(reply) for reply in self._link.receive(pending, wait_s)]
        return [answer for answer in answers if answer is not None] + self._give_up()

    def refuse(self, error: RefusalError, hospital_id: str | None) -> None:
        """Count and log one refusal."""
        self.progress.refuse(error.reason, hospital_id or None)
        self.record("refusal", hospital=hospital_id or None, reason=error.reason, detail=error.detail)
        self._journal.say("refused %s: %s", hospital_id or "an unknown sender", error)

    def _give_up(self) -> list[Answer]:
        """Return a refusal for every task that has waited too long: a lost message must not block its hospital."""
        limit_s = self._link.give_up_s
        limits_s = {"train": limit_s, "evaluate": limit_s, "query": min(limit_s, _QUERY_LIMIT_S)}
        lost = self.in_flight.give_up(self._clock.now(), limits_s)
        return [(d, RefusalError(RefusalCode.NODE_LOST, f"No answer within {limits_s[d.kind]:g} s.")) for d in lost]

    def _settle(self, reply: Reply) -> Answer | None:
        try:
            dispatch = self.in_flight.settle(reply)
        except RefusalError as error:
            self.refuse(error, None)
            return None
        if reply.content is None:
            return dispatch, refusal_of(reply.error_code)
        try:
            return dispatch, _DECODERS[dispatch.kind](reply.content)
        except RefusalError as error:
            return dispatch, error
