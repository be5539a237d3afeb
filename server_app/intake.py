"""What becomes of the answer to a training task: held for the next version, refused, or asked for and thrown away.

Under two-phase release a hospital first says that its result is ready; only if the result is still wanted is it
released, and only then does it cost privacy budget.
"""

from __future__ import annotations

from federation.errors import RefusalCode, RefusalError
from federation.records.answers import Discarded, ModelUpdate, Readiness
from federation.records.tasks import DISCARD, RELEASE, encode_decision
from server_app.admission import admit_update, require_readiness
from server_app.aggregation.last_step import last_step_of
from server_app.checkpoint import is_written
from server_app.correspondence import Content, expect
from server_app.dispatch import Dispatch
from server_app.parts import Parts


class Intake:
    """Settles the answers to training tasks."""

    def __init__(self, parts: Parts) -> None:
        """Build the intake of one federation."""
        self._parts = parts
        self._mail = parts.mail
        self._rule = parts.rule
        self._mirror = parts.mirror
        self.losses: set[RefusalCode] = set()

    def settle(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        """Take the answer to a training task, or to the decision about its result."""
        if dispatch.kind == DISCARD:
            self._settle_discard(dispatch, answer)
        elif isinstance(answer, Readiness):
            self._settle_readiness(dispatch, answer)
        else:
            self._settle_update(dispatch, answer)

    def lose(self, name: str, error: RefusalError) -> None:
        """Tell the rule that nothing usable comes from `name`; a spent budget pauses it, which is no error."""
        self.losses.add(error.code)
        self._rule.lose(name)
        if error.code is RefusalCode.BUDGET_EXHAUSTED:
            self._mirror.pause(name)
        else:
            self._mail.refuse(error, name)

    def decide(self, dispatch: Dispatch, kind: str) -> None:
        """Send the decision of `kind` about the result of the training task `dispatch`."""
        content = encode_decision(dispatch.model_version, self._parts.settings.run.name)
        sent = self._mail.ask(
            content,
            node_id=self._parts.roster.members[dispatch.hospital_id].node_id,
            kind=kind,
            hospital_id=dispatch.hospital_id,
            version=dispatch.model_version,
            number=dispatch.number,
            began_at=dispatch.began_at,
        )
        if not sent:
            lost = RefusalError(RefusalCode.NODE_LOST, "Flower no longer knows its node.")
            self.lose(dispatch.hospital_id, lost)

    def _settle_update(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        parts, name = self._parts, dispatch.hospital_id
        if self._has_moved(dispatch, answer):
            self.decide(dispatch, dispatch.kind)
            return
        try:
            member, answered = parts.roster.members[name], expect(ModelUpdate, answer)
            self._note_duration(dispatch)
            self._mirror.book(name, answered.declaration, examples=answered.examples)
            direction = last_step_of(parts.model.optimizer_state)
            update = admit_update(answered, dispatch, member, parts.model.parameters, direction)
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
        self._mail.record(
            "update",
            hospital=name,
            number=update.number,
            base_version=update.base_version,
            examples=update.examples,
        )

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
        wanted = self._rule.expects(name) and self._staleness(dispatch) <= self._limit
        self._mail.record("ready", hospital=name, number=dispatch.number, base_version=dispatch.model_version)
        self.decide(dispatch, RELEASE if wanted else DISCARD)

    def _settle_discard(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        name = dispatch.hospital_id
        if self._has_moved(dispatch, answer):
            self.decide(dispatch, dispatch.kind)
            return
        try:
            require_readiness(expect(Discarded, answer), dispatch)
        except RefusalError as error:
            self.lose(name, error)
            return
        self._parts.progress.of(name).discarded += 1
        age = f"base version {dispatch.model_version} of {self._parts.model.version}"
        self.lose(name, RefusalError(RefusalCode.DISCARDED, f"Too old or too late, and not released: {age}."))

    def _has_moved(self, dispatch: Dispatch, answer: Content | RefusalError) -> bool:
        """Return whether a decision was lost on a node that its hospital, which keeps the result, has left since."""
        lost = isinstance(answer, RefusalError) and answer.code is RefusalCode.NODE_LOST
        member = self._parts.roster.members[dispatch.hospital_id]
        return lost and dispatch.kind != "train" and member.node_id != dispatch.node_id

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
        progress = self._parts.progress
        progress.longest_task_s = max(progress.longest_task_s, self._mail.now() - dispatch.began_at)

    def _note_pause(self, name: str) -> None:
        if self._mirror.is_paused(name):
            self._mail.record("pause", hospital=name)
