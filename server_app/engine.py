"""The event-driven engine: dispatch, collect, apply when the rule says so. Synchronous FedAvg is one rule of it.

One update's path through here: `_dispatch` sends the model, `_on_update` admits the reply and offers it to the rule,
`_apply` adds it to the model and makes the version durable before anything else happens.
"""

from __future__ import annotations

import math

from federation.config import Configuration
from federation.errors import RefusalCode, RefusalError, RunFailedError
from federation.randomness import derive_seed
from federation.records.answers import ModelUpdate
from federation.records.tasks import encode_training_task
from server_app.admission import admit_update
from server_app.aggregation.rule import AggregationRule, Update
from server_app.aggregation.weights import size_factor
from server_app.checkpoint import Checkpoint, CheckpointStore
from server_app.correspondence import Content, Correspondence, expect
from server_app.dispatch import Dispatch
from server_app.evaluation import EvaluationDesk
from server_app.global_model import GlobalModel
from server_app.mirror import LedgerMirror
from server_app.reach import Reach
from server_app.registrar import Registrar

_TICK_S = 5.0


class Engine:
    """Runs one federation from its current version to the last."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        mail: Correspondence,
        registrar: Registrar,
        rule: AggregationRule,
        model: GlobalModel,
        store: CheckpointStore,
        evaluation: EvaluationDesk,
        mirror: LedgerMirror,
    ) -> None:
        """Put the parts together; nothing is sent yet."""
        self._settings = configuration
        self._mail = mail
        self._registrar = registrar
        self._roster = registrar.roster
        self._rule = rule
        self._model = model
        self._store = store
        self._progress = mail.progress
        self._evaluation = evaluation
        self._mirror = mirror
        self._reach = Reach(registrar, mail, wait_s=configuration.run.wait_s)
        self._losses: set[RefusalCode] = set()
        self._not_before = mail.now()

    def run(self) -> None:
        """Make versions until the configured number is reached, evaluating on the way and at the end.

        Raises:
            RunFailedError: no hospital can be reached, too many rounds in a row were empty, or the model diverged.
        """
        last = self._settings.aggregation.rounds
        if not self._progress.model_version:
            self._save()
        self._evaluate_if_due()
        while self._model.version < last and not self._is_spent():
            self._dispatch()
            self._collect()
            if self._rule.is_due(self._mail.now()):
                self._apply()
        if self._model.version < last:
            self._save()
        self._wait_for_the_late()
        self._evaluate("validation")
        self._evaluate("test")

    def _is_spent(self) -> bool:
        """Return whether too few hospitals have budget left to make a version and no update is still expected.

        Further rounds would be too small and spend the others' budget for nothing.
        """
        members = self._roster.members
        able = self._mirror.unpaused(members)
        too_few = len(able) < len(members) and len(able) < self._settings.aggregation.min_updates
        return too_few and not self._mail.in_flight.count("train")

    def _dispatch(self) -> None:
        self._reach.look()
        self._reach.require_somebody()
        if self._mail.now() < self._not_before:
            return
        for name in self._rule.choose(self._mirror.unpaused(self._reach.idle()), self._mail.now()):
            if not self._send_training(name):
                self._lose(name, RefusalError(RefusalCode.NODE_LOST, "Flower no longer knows its node."))

    def _send_training(self, name: str) -> bool:
        run, version = self._settings.run, self._model.version
        content = encode_training_task(
            self._model.broadcast(),
            model_version=version,
            plan=self._settings.training.at_version(version),
            seed=derive_seed(run.seed, "training", version, name),
            run=run.name,
        )
        node_id = self._roster.members[name].node_id
        sent = self._mail.ask(content, node_id=node_id, kind="train", hospital_id=name, version=version)
        self._progress.of(name).dispatched += sent
        return sent

    def _collect(self) -> None:
        self._reach.look()
        now = self._mail.now()
        coming = [moment - now for moment in (self._rule.next_deadline(), self._not_before) if moment > now]
        for dispatch, answer in self._mail.collect(min([_TICK_S, *coming])):
            if dispatch.kind == "query":
                self._registrar.settle(dispatch, answer)
            elif dispatch.kind == "evaluate":
                self._evaluation.settle(dispatch, answer)
            else:
                self._on_update(dispatch, answer)

    def _on_update(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        name = dispatch.hospital_id
        try:
            member, answered = self._roster.members[name], expect(ModelUpdate, answer)
            self._mirror.book(name, answered.declaration, examples=answered.examples)
            update = admit_update(answered, dispatch, member, self._model.parameters)
        except RefusalError as error:
            self._lose(name, error)
            return
        finally:
            self._note_pause(name)
        if self._rule.offer(update):
            self._mail.record("update", hospital=name, base_version=update.base_version, examples=update.examples)
        else:
            self._mail.refuse(RefusalError(RefusalCode.LATE_REPLY, "Its round was already over."), name)

    def _lose(self, name: str, error: RefusalError) -> None:
        """Tell the rule that nothing usable comes from `name`; a spent budget pauses it, which is no error."""
        self._losses.add(error.code)
        self._rule.lose(name)
        if error.code is RefusalCode.BUDGET_EXHAUSTED:
            self._mirror.pause(name)
        else:
            self._mail.refuse(error, name)

    def _note_pause(self, name: str) -> None:
        if self._mirror.is_paused(name):
            self._mail.record("pause", hospital=name)

    def _apply(self) -> None:
        updates = self._rule.take()
        self._progress.rounds += 1
        if len(updates) < self._settings.aggregation.min_updates:
            self._discard(updates)
            return
        self._progress.empty_rounds = 0
        self._losses = set()
        factors = [size_factor(update.examples, self._settings.aggregation.weighting) for update in updates]
        base = self._model.version
        self._model.apply([update.parameters for update in updates], factors)
        for update in updates:
            self._progress.apply(update.hospital_id, base - update.base_version)
        self._progress.model_version = version = self._model.version
        if version % self._settings.run.checkpoint_every == 0 or version >= self._settings.aggregation.rounds:
            self._save()
        self._record_application(updates, factors, base)
        self._evaluate_if_due()

    def _discard(self, updates: list[Update]) -> None:
        """Count a round without enough updates; the model stays as it is.

        Rounds lost to absent nodes only are spread over `run.wait-s`, so that a short outage of everybody is waited
        out instead of being counted away within a second.
        """
        self._progress.empty_rounds += self._losses != {RefusalCode.BUDGET_EXHAUSTED}
        limit = self._settings.aggregation.max_empty_rounds
        if self._losses == {RefusalCode.NODE_LOST}:
            self._not_before = self._mail.now() + self._settings.run.wait_s / limit
        self._losses = set()
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
        self._mail.note_totals()
        model = self._model
        self._store.save(
            Checkpoint(parameters=model.parameters, progress=self._progress, optimizer_state=model.optimizer_state)
        )

    def _record_application(self, updates: list[Update], factors: list[float], base: int) -> None:
        total = sum(factors)
        rows = [
            {
                "hospital": update.hospital_id,
                "staleness": base - update.base_version,
                "examples": update.examples,
                "size_factor": factor,
                "weight": factor / total,
            }
            for update, factor in zip(updates, factors, strict=True)
        ]
        self._mail.record("apply", version=self._model.version, updates=rows)

    def _evaluate_if_due(self) -> None:
        """Evaluate the current version if it is the last one, or its turn has come."""
        version, every = self._model.version, self._settings.run.evaluate_every
        if version >= self._settings.aggregation.rounds or (every and version % every == 0):
            self._evaluate("validation")

    def _evaluate(self, split: str) -> None:
        """Score the current model everywhere; training waits for the answers, so that both engines do the same."""
        self._reach.look()
        if not self._evaluation.open(self._model, split, self._reach.idle()):
            return
        deadline_s = self._settings.aggregation.deadline_s
        end = self._mail.now() + (max(deadline_s, self._settings.run.wait_s) if deadline_s else math.inf)
        while self._mail.in_flight.count("evaluate") and self._mail.now() < end:
            self._collect()
        self._evaluation.close()

    def _wait_for_the_late(self) -> None:
        """Give hospitals that missed the last deadline some time to get free, so that the final test includes them."""
        if not self._settings.run.hospital_evaluation:
            return
        end = self._mail.now() + max(self._settings.aggregation.deadline_s, self._settings.run.wait_s)
        while (
            self._mail.in_flight.count("train") or self._mail.in_flight.count("evaluate")
        ) and self._mail.now() < end:
            self._collect()
