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
from server_app.aggregation.weighing import Weight
from server_app.checkpoint import Checkpoint, is_written
from server_app.dispatch import DECISION_KINDS, TRAINING_KINDS
from server_app.intake import Intake
from server_app.parts import Parts
from server_app.reach import Reach
from server_app.resumption import Resumption
from server_app.training_tasks import encode_task

_TICK_S = 5.0
_PATIENCE = 1.5


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
        self._consumed: list[int] = []
        self._not_before = -math.inf

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
        self._evaluate_if_due()
        while self._model.version < last:
            spent = self._is_spent()
            self._dispatch(spent=spent)
            if not self._rule.is_due(self._mail.now()):
                if spent:
                    break
                self._collect()
            if self._rule.is_due(self._mail.now()):
                self._apply()
        if self._model.version < last:
            self._save()
        self._rule.close()
        self._wait_for_the_late()
        self._evaluate("validation")
        self._evaluate("test")

    def _require_enough(self) -> None:
        settings, there = self._settings.aggregation, len(self._parts.roster)
        if settings.rule == "buffered" and settings.buffer_size > there:
            raise ConfigurationError(
                f"Expected aggregation.buffer-size={settings.buffer_size} <= the {there} hospitals that enrolled."
            )

    def _is_spent(self) -> bool:
        """Return whether too few hospitals have budget left to make a version and no update is still expected.

        Further rounds would be too small and spend the others' budget for nothing.
        """
        members = self._parts.roster.members
        able = self._mirror.unpaused(members)
        too_few = len(able) < len(members) and len(able) < self._settings.aggregation.min_updates
        return too_few and not self._mail.in_flight.count(*TRAINING_KINDS)

    def _dispatch(self, *, spent: bool) -> None:
        """Let the rule choose among the idle hospitals; where budgets are spent, among none, and nobody works."""
        self._reach.look()
        self._reach.require_somebody()
        self._intake.catch_up(self._reach.present())
        if self._mail.now() < self._not_before:
            return
        asked = self._evaluation.ask(self._reach.idle())
        present = self._mirror.unpaused(self._reach.present())
        idle = [name for name in self._mirror.unpaused(self._reach.idle()) if name not in asked]
        situation = Situation(
            now=self._mail.now(),
            version=self._model.version,
            idle=[] if spent else idle,
            at_work=0 if spent else len(self._mail.in_flight) - self._mail.in_flight.count("query"),
            given={name: self._progress.of(name).updates for name in present},
            tasks=self._progress.tasks,
        )
        for name in self._rule.choose(situation):
            if not self._send_training(name):
                self._intake.lose(name, RefusalError(RefusalCode.NODE_LOST, "Flower no longer knows its node."))
        self._model.forget_broadcast()

    def _send_training(self, name: str) -> bool:
        version = self._model.version
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
        now = self._mail.now()
        coming = [moment - now for moment in (self._rule.next_deadline(), self._not_before) if moment > now]
        received = self._mail.receive(min([at_most_s, *coming]))
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

    def _apply(self) -> None:
        updates = self._rule.take()
        self._progress.rounds += 1
        self._consumed += [update.number for update in updates]
        self._progress.waiting.clear()
        if len(updates) < self._settings.aggregation.min_updates:
            self._discard(updates)
            return
        self._progress.empty_rounds = 0
        self._intake.losses.clear()
        weights = self._weigh(updates)
        coefficients = self._parts.weighing.coefficients(weights)
        base = self._model.version
        length = math.fsum(c * update.norm for c, update in zip(coefficients, updates, strict=True))
        steps, updates = [update.load for update in updates], [update.without_tensors() for update in updates]
        self._model.apply(steps, coefficients, norm=length)
        del steps
        for update, weight, coefficient in zip(updates, weights, coefficients, strict=True):
            self._progress.apply(update.hospital_id, base - update.base_version, coefficient, weight.as_row())
        self._progress.model_version = version = self._model.version
        if version >= self._settings.aggregation.rounds:
            self._rule.close()
        if is_written(self._settings, version):
            self._save()
        self._record_application(updates, weights, coefficients, base)
        self._evaluate_if_due()

    def _weigh(self, updates: list[Update]) -> list[Weight]:
        """Return the weights of `updates`, and remember what later ones are compared with."""
        progress, settings = self._progress, self._settings.aggregation
        weights = self._parts.weighing.weigh(
            updates,
            version=self._model.version,
            applied={name: item.updates for name, item in progress.contributions.items()},
            norms=progress.norms,
            least_variance=progress.least_variance or 0.0,
        )
        for update in updates:
            if settings.anomaly_threshold:
                progress.norms.note(update.hospital_id, variance=update.noise_variance, norm=update.norm)
            if update.noise_variance:
                progress.least_variance = min(progress.least_variance or math.inf, update.noise_variance)
        return weights

    def _discard(self, updates: list[Update]) -> None:
        """Count a round without enough updates; the model stays as it is.

        Rounds lost to absent nodes only are spread over `run.wait-s`, so that a short outage of everybody is waited
        out instead of being counted away within a second.
        """
        losses = set(self._intake.losses)
        self._progress.empty_rounds += losses != {RefusalCode.BUDGET_EXHAUSTED}
        limit = self._settings.aggregation.max_empty_rounds
        if losses == {RefusalCode.NODE_LOST}:
            self._not_before = self._mail.now() + self._settings.run.wait_s / limit
        self._intake.losses.clear()
        for update in updates:
            self._mail.refuse(
                RefusalError(
                    RefusalCode.ROUND_TOO_SMALL,
                    f"Expected {self._settings.aggregation.min_updates} updates, found {len(updates)}.",
                ),
                update.hospital_id,
            )
        self._save()
        if self._progress.empty_rounds >= limit:
            raise RunFailedError(
                f"{self._progress.empty_rounds} rounds in a row brought fewer than "
                f"{self._settings.aggregation.min_updates} usable updates; refused so far: {self._progress.refused}."
            )

    def _save(self) -> None:
        """Make the current version durable, with everything that a resumed run must know."""
        self._mail.note_totals()
        model = self._model
        self._progress.consumed, self._consumed = self._consumed, []
        self._progress.in_flight = [item.as_open_task() for item in self._mail.in_flight if item.kind != "query"]
        self._parts.store.save(
            Checkpoint(parameters=model.parameters, progress=self._progress, optimizer_state=model.optimizer_state)
        )
        self._parts.buffer.drop(self._progress.consumed)

    def _record_application(
        self, updates: list[Update], weights: list[Weight], coefficients: list[float], base: int
    ) -> None:
        rows = [
            {
                "hospital": update.hospital_id,
                "number": update.number,
                "staleness": base - update.base_version,
                "examples": update.examples,
                "factors": weight.as_row(),
                "weight": coefficient,
            }
            for update, weight, coefficient in zip(updates, weights, coefficients, strict=True)
        ]
        self._mail.record("apply", version=self._model.version, updates=rows)

    def _evaluate_if_due(self) -> None:
        """Evaluate the current version if it is the last one, or its turn has come."""
        version, every = self._model.version, self._settings.run.evaluate_every
        last = version >= self._settings.aggregation.rounds
        if not last and not (every and version % every == 0):
            return
        if last or self._settings.aggregation.is_synchronous:
            self._evaluate("validation")
        else:
            self._evaluation.open_beside_training(self._model)

    def _evaluate(self, split: str) -> None:
        """Score the current model everywhere; training waits for the answers, so that both engines do the same."""
        self._reach.look()
        if not self._evaluation.open(self._model, split, self._reach.idle()):
            return
        end = self._mail.now() + self._longest_evaluation_s()
        while self._mail.in_flight.count("evaluate") and self._mail.now() < end:
            self._collect()
        self._evaluation.close()

    def _longest_evaluation_s(self) -> float:
        """Return how long hospitals are waited for: without rounds, nobody may hold up the end."""
        deadline_s, wait_s = self._settings.aggregation.deadline_s, self._settings.run.wait_s
        if self._settings.aggregation.is_synchronous:
            return max(deadline_s, wait_s) if deadline_s else math.inf
        return max(wait_s, _PATIENCE * self._progress.longest_task_s)

    def _wait_for_the_late(self) -> None:
        """Give hospitals that are at work some time to get free, so that the final test includes them.

        Without it only those are waited for that keep a result, until they have thrown it away.
        """
        while self._settings.aggregation.release == "two-phase" and self._collect(0.0):
            continue
        kinds: tuple[str, ...] = DECISION_KINDS
        if self._settings.run.hospital_evaluation:
            kinds = (*TRAINING_KINDS, "train.discard", "evaluate")
        limit_s = max(self._settings.aggregation.deadline_s, self._settings.run.wait_s)
        if not self._settings.aggregation.is_synchronous:
            limit_s = max(limit_s, _PATIENCE * self._progress.longest_task_s)
        end = self._mail.now() + limit_s
        while self._mail.in_flight.count(*kinds) and self._mail.now() < end:
            self._intake.catch_up(self._reach.present(), over=True)
            self._collect()
