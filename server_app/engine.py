"""The event-driven engine: dispatch, collect, apply when the rule says so. Synchronous FedAvg is one rule of it.

One update's path through here: `_dispatch` sends the model, `server_app.intake` admits the reply and offers it to the
rule, `_apply` adds it to the model and makes the version durable before anything else happens. Answers are read one by
one: what a checkpoint does not know as applied or waiting, it knows as open.
"""

from __future__ import annotations

import math

from federation.errors import ConfigurationError, RefusalCode, RefusalError, RunFailedError
from federation.records.fields import ARRAYS, Records
from federation.records.tensors import payload_bytes
from server_app.aggregation.rule import Situation, Update
from server_app.aggregation.weighing import explain_weightless
from server_app.checkpoint import Checkpoint, is_written
from server_app.dispatch import DECISION_KINDS, Dispatch
from server_app.intake import Intake
from server_app.parts import Parts
from server_app.reach import Reach
from server_app.resumption import Resumption
from server_app.scoring import Scoring, patience_s
from server_app.step import Step, weigh_step
from server_app.training_tasks import encode_task

_TICK_S = 5.0


class Engine:
    """Runs one federation from its current version to the last."""

    def __init__(self, parts: Parts) -> None:
        """Put the parts together; nothing is sent yet."""
        self._parts = parts
        self._settings = parts.settings
        self._mail = parts.mail
        self._rule = parts.rule
        self._model = parts.model
        self._progress = parts.progress
        self._evaluation = parts.evaluation
        self._mirror = parts.mirror
        self._intake = Intake(parts)
        self._reach = Reach(parts.registrar, parts.mail, wait_s=parts.settings.run.wait_s)
        self._scoring = Scoring(parts, self._reach, self._collect)
        self._consumed: list[int] = []
        self._not_before = -math.inf
        self._away_since = math.inf
        self._has_asked = False
        self._has_given_up = False

    def run(self) -> None:
        """Make versions until the configured number is reached, evaluating on the way and at the end.

        Raises:
            ConfigurationError: the buffer wants more updates than there are hospitals.
            RunFailedError: no hospital can be reached, too many rounds in a row were empty, or the model diverged.
        """
        last = self._settings.aggregation.rounds
        self._require_enough()
        self._mail.update_limit_bytes = payload_bytes(Records({ARRAYS: self._model.broadcast()}))
        Resumption(self._parts, self._intake).run()
        if not self._progress.model_version:
            self._save()
        if self._model.version >= last:
            self._rule.close()
        self._scoring.evaluate_if_due()
        while self._model.version < last:
            spent = self._is_spent()
            self._dispatch(spent=spent)
            if not self._rule.is_due(self._mail.now()):
                if spent:
                    break
                self._collect()
            if self._rule.is_due(self._mail.now()):
                self._apply(spent=spent)
        self._leave()
        self._wait_for_the_late()
        self._scoring.evaluate("validation")
        self._scoring.evaluate("test")

    def _require_enough(self) -> None:
        """Check the size of a buffer; hospitals that enrolled before a restart count, as they may yet reconnect."""
        settings, there = self._settings.aggregation, len({*self._parts.roster.members, *self._progress.roster})
        if settings.rule == "buffered" and settings.buffer_size > there:
            raise ConfigurationError(
                f"Expected aggregation.buffer-size={settings.buffer_size} <= the {there} hospitals that enrolled."
            )

    def _is_spent(self) -> bool:
        """Return whether too few hospitals have budget left to make a version and no update is still expected.

        Further rounds would be too small and spend the others' budget for nothing. Those that have budget and cannot be
        reached are waited for, `run.wait-s` long.
        """
        members = self._parts.roster.members
        able = self._mirror.unpaused(members)
        if len(able) == len(members) or self._mail.in_flight.count("train", *DECISION_KINDS):
            self._away_since = math.inf
            return False
        least = self._settings.aggregation.min_updates
        if self._has_given_up or not able or len(self._rule.waiting().union(able)) < least:
            return True
        there = self._mirror.unpaused(self._reach.present())
        self._away_since = math.inf if there else min(self._away_since, self._mail.now())
        return self._mail.now() - self._away_since > self._settings.run.wait_s

    def _dispatch(self, *, spent: bool) -> None:
        """Let the rule choose among the idle hospitals; where budgets are spent, among none, and nobody works."""
        self._reach.look()
        self._reach.require_somebody()
        self._intake.catch_up(self._reach.present())
        if self._mail.now() < self._not_before and not spent:
            return
        asked = self._evaluation.ask(self._reach.idle())
        present = self._mirror.unpaused(self._reach.present())
        idle = [name for name in self._mirror.unpaused(self._reach.idle()) if name not in asked]
        situation = Situation(
            now=self._mail.now(),
            version=self._model.version,
            idle=[] if spent else idle,
            at_work=0 if spent else len(self._mail.in_flight) - self._mail.in_flight.count("query"),
            overdue=self._overdue(),
            given={name: self._progress.of(name).updates for name in present},
            tasks=self._progress.tasks,
        )
        for name in self._rule.choose(situation):
            self._has_asked = True
            if not self._send_training(name):
                self._intake.lose(name, RefusalError(RefusalCode.NODE_LOST, "Flower no longer knows its node."))
        self._model.forget_broadcast()

    def _send_training(self, name: str) -> bool:
        version = self._model.version
        self._parts.recording.keep_model(version, self._model.parameters)
        sent = self._mail.ask(
            encode_task(self._settings, self._model.broadcast(), version=version, hospital_id=name),
            node_id=self._parts.roster.members[name].node_id,
            kind="train",
            hospital_id=name,
            version=version,
        )
        self._progress.of(name).dispatched += sent
        return sent

    def _collect(self, at_most_s: float = _TICK_S) -> bool:
        """Read one answer, or wait until one may have come; return whether one was read."""
        self._reach.look()
        now, laggard_s = self._mail.now(), patience_s(self._parts)
        overdue_at = [item.sent_at + laggard_s for item in self._at_work()]
        moments = [moment for moment in (self._rule.next_deadline(), self._not_before, *overdue_at) if moment > now]
        received = self._mail.receive(min([at_most_s, *(moment - now for moment in moments)]))
        if received is None:
            return False
        dispatch, answer = received
        if dispatch.kind == "query":
            self._parts.registrar.settle(dispatch, answer)
        elif dispatch.kind == "evaluate":
            self._evaluation.settle(dispatch, answer)
        elif self._intake.settle(dispatch, answer) and not self._parts.clock.replays:
            self._save()
        return True

    def _apply(self, *, spent: bool) -> None:
        updates, least = self._rule.take(), self._settings.aggregation.min_updates
        self._progress.rounds += 1
        if len(updates) < least:
            self._close_empty_round(updates, f"Expected {least} updates, found {len(updates)}.", keep=not spent)
            return
        step = weigh_step(self._parts, updates)
        if self._settings.aggregation.is_synchronous and not any(step.coefficients):
            self._close_empty_round(updates, explain_weightless(step.weights), keep=False)
            return
        self._progress.empty_rounds, self._has_asked = 0, False
        self._intake.losses.clear()
        self._consume(updates)
        loads, step, norm = [update.load for update in updates], step.without_tensors(), step.norm
        del updates
        self._model.apply(loads, step.coefficients, norm=norm)
        del loads
        step.count_in(self._progress)
        self._progress.model_version = version = self._model.version
        if version >= self._settings.aggregation.rounds:
            self._rule.close()
        if is_written(self._settings, version):
            self._save()
        self._record_application(step)
        self._scoring.evaluate_if_due()

    def _close_empty_round(self, updates: list[Update], why: str, *, keep: bool) -> None:
        """Count a round that makes no version; its updates wait for the next one, or are refused because of `why`.

        Hospitals have paid for their updates, so only those that nothing can come of are refused. Rounds lost to absent
        nodes only, and those for which nobody could be asked, are spread over `run.wait-s`, so that a short outage is
        waited out instead of being counted away within a second.
        """
        losses, limit = set(self._intake.losses), self._settings.aggregation.max_empty_rounds
        asked, self._has_asked = self._has_asked, False
        self._progress.empty_rounds += losses != {RefusalCode.BUDGET_EXHAUSTED}
        self._intake.losses.clear()
        if losses == {RefusalCode.NODE_LOST} or not asked:
            gap_s = max(self._settings.run.wait_s / limit, self._settings.aggregation.deadline_s)
            self._not_before = self._mail.now() + gap_s
        if keep:
            for update in updates:
                self._rule.restore(update)
        else:
            self._refuse(updates, why)
        if not (keep and updates and self._parts.clock.replays):
            self._save()
        if self._progress.empty_rounds >= limit:
            self._give_up(asked=asked)

    def _give_up(self, *, asked: bool) -> None:
        """End the run after too many empty rounds: as one whose budgets are spent if only those were missing.

        Raises:
            RunFailedError: what was missing is something else.
        """
        members = self._parts.roster.members
        if not asked and len(self._mirror.unpaused(members)) < len(members):
            self._has_given_up = True
            return
        raise RunFailedError(
            f"{self._progress.empty_rounds} rounds in a row brought fewer than "
            f"{self._settings.aggregation.min_updates} usable updates; refused so far: {self._progress.refused}."
        )

    def _refuse(self, updates: list[Update], why: str) -> None:
        for update in updates:
            self._mail.refuse(RefusalError(RefusalCode.ROUND_TOO_SMALL, why), update.hospital_id)
        self._consume(updates)

    def _consume(self, updates: list[Update]) -> None:
        """Let the next checkpoint say that `updates` wait no longer."""
        numbers = [update.number for update in updates]
        self._consumed += numbers
        self._progress.waiting = [number for number in self._progress.waiting if number not in numbers]

    def _leave(self) -> None:
        """End training: whatever waits makes no version any more, and is counted."""
        ended_early = self._model.version < self._settings.aggregation.rounds
        left = []
        while updates := self._rule.take():
            left += updates
        self._refuse(left, "The run has ended before there were enough for a version.")
        if left or ended_early:
            self._save()
        self._rule.close()

    def _save(self) -> None:
        """Make the current version durable, with everything that a resumed run must know."""
        self._mail.note_totals()
        model = self._model
        self._progress.consumed, self._consumed = self._consumed, []
        self._progress.in_flight = self._mail.open_tasks()
        self._parts.store.save(
            Checkpoint(parameters=model.parameters, progress=self._progress, optimizer_state=model.optimizer_state)
        )
        self._parts.buffer.drop(self._progress.consumed)

    def _record_application(self, step: Step) -> None:
        self._mail.record("apply", version=self._model.version, updates=step.rows())

    def _overdue(self) -> frozenset[str]:
        """Return the hospitals that are at work for unusually long."""
        now, laggard_s = self._mail.now(), patience_s(self._parts)
        return frozenset(item.hospital_id for item in self._at_work() if item.sent_at + laggard_s <= now)

    def _at_work(self) -> list[Dispatch]:
        """Return the tasks that hospitals have and have not answered; a decision that is owed has not reached any."""
        owed = self._mail.in_flight.owed
        return [item for item in self._mail.in_flight if item.kind != "query" and item not in owed]

    def _wait_for_the_late(self) -> None:
        """Give hospitals that are at work some time to get free, so that the last scores include them.

        Without it only those are waited for that keep a result, until they have thrown it away.
        """
        while self._settings.aggregation.release == "two-phase" and self._collect(0.0):
            continue
        kinds: tuple[str, ...] = DECISION_KINDS
        if self._settings.run.hospital_evaluation:
            kinds = ("train", *DECISION_KINDS, "evaluate")
        limit_s = max(self._settings.aggregation.deadline_s, self._settings.run.wait_s)
        if not self._settings.aggregation.is_synchronous:
            limit_s = max(limit_s, patience_s(self._parts))
        end = self._mail.now() + limit_s
        self._scoring.ask()
        while (self._mail.in_flight.count(*kinds) and self._mail.now() < end) or self._scoring.is_awaited():
            self._intake.catch_up(self._reach.present(), over=True)
            self._collect()
            self._scoring.ask()
