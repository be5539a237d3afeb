"""What becomes of the answer to a training task: held for the next version, refused, or asked for and thrown away.

Under two-phase release a hospital first says that its result is ready; only if the result is still wanted is it
released, and only then does it cost privacy budget. A decision that was lost with a node is owed: it is made anew when
the hospital, which keeps the result, can be reached again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from federation.errors import RefusalCode, RefusalError, SiteErrorCode
from federation.records.answers import Discarded, ModelUpdate, Readiness
from federation.records.tasks import DISCARD, RELEASE, encode_decision
from server_app.admission import admit_update, refusal_of, require_readiness
from server_app.aggregation.last_step import last_step_of
from server_app.checkpoint import is_written
from server_app.correspondence import Content, expect
from server_app.dispatch import DECISION_KINDS, Dispatch
from server_app.parts import Parts

_AGAIN_AFTER_S = 5.0
_MOST_TIMES = 10


@dataclass(slots=True)
class _Loss:
    """How often a decision was lost, since when, and when it is made anew if its hospital has not moved."""

    since: float
    times: int = 0
    again_at: float = 0.0


class Intake:
    """Settles the answers to training tasks."""

    def __init__(self, parts: Parts) -> None:
        """Build the intake of one federation."""
        self._parts = parts
        self._mail = parts.mail
        self._rule = parts.rule
        self._mirror = parts.mirror
        self.losses: set[RefusalCode] = set()
        self._debts: dict[int, _Loss] = {}

    def settle(self, dispatch: Dispatch, answer: Content | RefusalError) -> bool:
        """Take the answer to a training task, or to the decision about its result.

        Returns:
            Whether a decision is owed now, which a checkpoint should know.
        """
        lost = isinstance(answer, RefusalError) and answer.code is RefusalCode.NODE_LOST
        if lost and dispatch.kind in DECISION_KINDS:
            self.owe(dispatch)
        elif dispatch.number in self._debts and _is_nothing(answer):
            self.lose(dispatch.hospital_id, RefusalError(RefusalCode.NODE_LOST, "Its result is gone since."))
        elif dispatch.kind == DISCARD:
            self._settle_discard(dispatch, answer)
        elif isinstance(answer, Readiness):
            self._settle_readiness(dispatch, answer)
        else:
            self._settle_update(dispatch, answer)
        return any(owed.number == dispatch.number for owed in self._mail.in_flight.owed)

    def lose(self, name: str, error: RefusalError) -> None:
        """Tell the rule that nothing usable comes from `name`; a spent budget pauses it, which is no error."""
        self.losses.add(error.code)
        self._rule.lose(name)
        if error.code is RefusalCode.BUDGET_EXHAUSTED:
            self._mirror.pause(name)
        else:
            self._mail.refuse(error, name)

    def decide(self, dispatch: Dispatch, kind: str) -> None:
        """Send the decision of `kind` about the result of the training task `dispatch`, or owe it."""
        node_id = self._parts.roster.members[dispatch.hospital_id].node_id
        sent = self._mail.ask(
            encode_decision(dispatch.model_version, self._parts.settings.run.name),
            node_id=node_id,
            kind=kind,
            hospital_id=dispatch.hospital_id,
            version=dispatch.model_version,
            number=dispatch.number,
            began_at=dispatch.began_at,
        )
        if not sent:
            self.owe(replace(dispatch, kind=kind, node_id=node_id))

    def owe(self, dispatch: Dispatch) -> None:
        """Remember the decision `dispatch`, which has not reached its hospital, as of when that was first noticed."""
        loss = self._debts.setdefault(dispatch.number, _Loss(since=self._mail.now()))
        loss.times += 1
        loss.again_at = self._mail.now() + _AGAIN_AFTER_S
        self._mail.in_flight.owe(replace(dispatch, sent_at=loss.since))

    def catch_up(self, present: Collection[str], *, over: bool = False) -> None:
        """Tell hospitals that are back what becomes of their results; give up those that stay away.

        A hospital may come back within `give-up-s`, but the rule waits for it no longer than `run.wait-s`.

        Args:
            present: hospitals that can be reached.
            over: whether no update is wanted any more.
        """
        settings, now = self._parts.settings, self._mail.now()
        for owed in self._mail.in_flight.owed:
            name, loss = owed.hospital_id, self._debts[owed.number]
            moved = name in present and self._parts.roster.members[name].node_id != owed.node_id
            if now - loss.since >= settings.aggregation.give_up_s or loss.times > _MOST_TIMES:
                self._mail.in_flight.settle_debt(name)
                lost = RefusalError(RefusalCode.NODE_LOST, f"Its result was asked for {loss.times} times.")
                self.lose(name, lost)
            elif moved or (name in present and now >= loss.again_at):
                self._decide_anew(owed, over=over)
            elif name not in present and now - loss.since >= settings.run.wait_s:
                self._stop_waiting_for(name)

    def _stop_waiting_for(self, name: str) -> None:
        """Let the rule go on without `name`, once for each absence."""
        if self._mail.in_flight.is_awaited(name):
            self._mail.in_flight.stop_waiting_for(name)
            self.losses.add(RefusalCode.NODE_LOST)
            self._rule.lose(name)

    def _decide_anew(self, owed: Dispatch, *, over: bool) -> None:
        self._mail.in_flight.settle_debt(owed.hospital_id)
        if owed.kind == RELEASE and not over:
            self._rule.resend(owed.hospital_id, owed.model_version)
        wanted = owed.kind == RELEASE and self._is_wanted(owed)
        self.decide(owed, RELEASE if wanted else DISCARD)

    def _settle_update(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        parts, name = self._parts, dispatch.hospital_id
        try:
            member, answered = parts.roster.members[name], expect(ModelUpdate, answer)
            self._note_duration(dispatch)
            self._mirror.book(name, answered.declaration, examples=answered.examples)
            direction = last_step_of(parts.model.optimizer_state)
            update = admit_update(answered, dispatch, member, parts.model.parameters, direction)
            self._record(answered)
            if dispatch.kind != RELEASE:
                self._require_fresh(dispatch)
        except RefusalError as error:
            self.lose(name, error)
            return
        finally:
            self._note_pause(name)
        if not self._rule.expects(name):
            self._mail.refuse(RefusalError(RefusalCode.LATE_REPLY, "Its round was already over."), name)
            return
        at_once = self._rule.completes(name) and is_written(parts.settings, parts.model.version + 1)
        held = update if at_once else parts.buffer.hold(update, answered.declaration)
        self._rule.offer(held)
        parts.progress.waiting.append(update.number)
        self._mail.record(
            "update",
            hospital=name,
            number=update.number,
            base_version=update.base_version,
            examples=update.examples,
        )

    def _record(self, answer: ModelUpdate) -> None:
        if not self._parts.recording.keep_update(answer, self._parts.model.parameters):
            self._mail.record("unrecorded", hospital=answer.hospital_id, base_version=answer.model_version)

    def _settle_readiness(self, dispatch: Dispatch, answer: Readiness) -> None:
        name = dispatch.hospital_id
        try:
            if self._parts.settings.aggregation.release != "two-phase":
                raise RefusalError(RefusalCode.MALFORMED, "Expected an update, found that a result is ready.")
            require_readiness(answer, dispatch)
        except RefusalError as error:
            self.lose(name, error)
            return
        self._note_duration(dispatch)
        self._mail.record("ready", hospital=name, number=dispatch.number, base_version=dispatch.model_version)
        self.decide(dispatch, RELEASE if self._is_wanted(dispatch) else DISCARD)

    def _settle_discard(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        name = dispatch.hospital_id
        try:
            require_readiness(expect(Discarded, answer), dispatch)
        except RefusalError as error:
            self.lose(name, error)
            return
        self._parts.progress.of(name).discarded += 1
        age = f"base version {dispatch.model_version} of {self._parts.model.version}"
        self.lose(name, RefusalError(RefusalCode.DISCARDED, f"Too old or too late, and not released: {age}."))

    def _is_wanted(self, dispatch: Dispatch) -> bool:
        return self._rule.expects(dispatch.hospital_id) and self._staleness(dispatch) <= self._limit

    def _require_fresh(self, dispatch: Dispatch) -> None:
        if (staleness := self._staleness(dispatch)) > self._limit:
            raise RefusalError(
                RefusalCode.TOO_STALE, f"Expected at most {self._limit} versions since its dispatch, found {staleness}."
            )

    @property
    def _limit(self) -> int:
        return self._parts.settings.aggregation.max_staleness

    def _staleness(self, dispatch: Dispatch) -> int:
        return self._parts.model.version - dispatch.model_version

    def _note_duration(self, dispatch: Dispatch) -> None:
        """Note how long training took; a decision may have been owed for hours, which says nothing about training."""
        progress = self._parts.progress
        if dispatch.kind != "train":
            return
        progress.longest_task_s = max(progress.longest_task_s, self._mail.now() - dispatch.began_at)

    def _note_pause(self, name: str) -> None:
        if self._mirror.is_paused(name):
            self._mail.record("pause", hospital=name)


def _is_nothing(answer: Content | RefusalError) -> bool:
    """Return whether a hospital answers that it keeps no result, as one whose answer was lost says when asked again."""
    return isinstance(answer, RefusalError) and answer.reason == refusal_of(SiteErrorCode.NOTHING_PENDING).reason
