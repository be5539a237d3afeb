"""How a killed run goes on: updates that waited are taken back, and open tasks sent again where that is exact.

On the virtual clock hospitals stop with the server, so every open task is sent again as of its old time, and the run
goes on to the same bits. In a deployment a new run of Flower cannot hear answers to the old one: the open tasks are
counted as interrupted, and their hospitals are asked anew; so are, under `run.checkpoint-every` > 1, tasks based on a
version that was not written. Only decisions outlive that: hospitals keep the results, and are told again.
"""

from __future__ import annotations

from dataclasses import replace

from federation.errors import RefusalCode, RefusalError
from federation.parameters import Parameters
from federation.records.answers import Readiness
from federation.records.declarations import Declaration
from federation.records.fields import Records
from federation.records.tasks import encode_evaluation_task
from federation.records.tensors import encode_parameters
from server_app.aggregation.rule import Update
from server_app.correspondence import Content
from server_app.dispatch import DECISION_KINDS, TRAINING_KINDS, Dispatch
from server_app.intake import Intake
from server_app.parts import Parts
from server_app.progress import OpenTask
from server_app.training_tasks import encode_task


class Resumption:
    """Brings a federation back to where its newest checkpoint left it."""

    def __init__(self, parts: Parts, intake: Intake) -> None:
        """Build the resumption of one federation."""
        self._parts = parts
        self._intake = intake

    def run(self) -> None:
        """Take back what waited, then send again, or give up, what was open.

        Raises:
            CheckpointError: something that waited is damaged, or a version that a hospital works on is.
        """
        parts, replays = self._parts, self._parts.clock.replays
        open_tasks = [task for task in parts.progress.in_flight if self._can_go_on(task)]
        waiting = self._take_back()
        parts.progress.tasks = max([parts.progress.tasks, *waiting, *(task.number for task in open_tasks)])
        open_tasks = [task for task in open_tasks if task.number not in waiting]
        again = [task for task in open_tasks if replays and self._is_kept(task.version)]
        owed = [task for task in open_tasks if not replays and task.kind in DECISION_KINDS]
        self._reopen_evaluation(again)
        if replays:
            self._send_again(again)
        for task in owed:
            self._intake.owe(Dispatch.of(task))
        self._give_up([task for task in open_tasks if task not in again + owed])

    def _can_go_on(self, task: OpenTask) -> bool:
        """Return whether the hospital of `task` has enrolled, or keeps a result for as long as it takes to come."""
        keeps = task.kind in DECISION_KINDS and not self._parts.clock.replays
        return keeps or task.hospital_id in self._parts.roster.members

    def _take_back(self) -> set[int]:
        """Let the rule have the updates that waited, and return their numbers.

        One that is based on a version which was not durable, and so was lost, counts as based on this one.
        """
        parts = self._parts
        kept = parts.buffer.restore(parts.model.parameters, parts.progress.consumed)
        for update, declaration in kept:
            if update.number not in parts.progress.waiting:
                self._book(update, declaration)
            base_version = min(update.base_version, parts.model.version)
            parts.rule.restore(replace(update, base_version=base_version))
            parts.mail.record("restore", hospital=update.hospital_id, number=update.number)
        numbers = {update.number for update, _ in kept}
        parts.progress.waiting = sorted(numbers)
        return numbers

    def _book(self, update: Update, declaration: Declaration | None) -> None:
        try:
            self._parts.mirror.book(update.hospital_id, declaration, examples=update.examples)
        except RefusalError as error:
            self._parts.mail.refuse(error, update.hospital_id)

    def _reopen_evaluation(self, again: list[OpenTask]) -> None:
        """Go on with the evaluation that was open; whom no task is sent again is asked anew when it is free.

        Where its version was lost, what has come of it is all that comes.
        """
        parts, now = self._parts, self._parts.progress.evaluation
        if now is None:
            return
        if not self._is_kept(now.version):
            parts.evaluation.close()
            return
        parts.evaluation.reopen(self._version(now.version))
        repeated = {task.hospital_id for task in again if (task.kind, task.version) == ("evaluate", now.version)}
        now.wanted = [name for name in now.asked if name not in repeated] + now.wanted
        now.asked = [name for name in now.asked if name in repeated]

    def _give_up(self, tasks: list[OpenTask]) -> None:
        for task in tasks:
            if task.kind in TRAINING_KINDS:
                detail = f"The server was restarted while it worked on version {task.version}."
                self._parts.mail.refuse(RefusalError(RefusalCode.INTERRUPTED, detail), task.hospital_id)

    def _send_again(self, tasks: list[OpenTask]) -> None:
        """Send every open task as of the time when it was sent; afterwards it is the time of the checkpoint."""
        parts = self._parts
        self._repeat_decisions([task for task in tasks if task.kind not in ("train", "evaluate")])
        for task in tasks:
            parts.clock.set(task.sent_at)
            if task.kind == "train":
                self._train(task)
            elif task.kind == "evaluate":
                self._ask_for_scores(task)
        parts.mail.in_flight.sort([task.number for task in tasks])
        parts.clock.set(parts.progress.elapsed_s)

    def _repeat_decisions(self, tasks: list[OpenTask]) -> None:
        """Let hospitals train again until they are ready, then tell them once more what becomes of the results."""
        parts = self._parts
        for task in tasks:
            parts.clock.set(task.began_at)
            self._train(task)
        answers = self._receive_all({task.number for task in tasks})
        for task in tasks:
            answer = answers.get(task.number)
            if isinstance(answer, Readiness):
                parts.clock.set(task.sent_at)
                self._intake.decide(Dispatch.of(task), task.kind)
            elif answer is not None:
                found = answer if isinstance(answer, RefusalError) else _not_ready(answer)
                self._intake.lose(task.hospital_id, found)

    def _receive_all(self, numbers: set[int]) -> dict[int, Content | RefusalError]:
        """Return the answers to the tasks with these `numbers`, of which each is given up at last."""
        mail, answers = self._parts.mail, {}
        while any(dispatch.number in numbers for dispatch in mail.in_flight):
            if (received := mail.receive(self._parts.settings.aggregation.give_up_s)) is not None:
                answers[received[0].number] = received[1]
        return answers

    def _train(self, task: OpenTask) -> None:
        parameters = self._version(task.version)
        self._parts.recording.keep_model(task.version, parameters)
        arrays = encode_parameters(parameters)
        content = encode_task(self._parts.settings, arrays, version=task.version, hospital_id=task.hospital_id)
        self._parts.rule.resend(task.hospital_id, task.version)
        if not self._ask(task, content, "train"):
            lost = RefusalError(RefusalCode.NODE_LOST, "Flower no longer knows its node.")
            self._intake.lose(task.hospital_id, lost)

    def _ask_for_scores(self, task: OpenTask) -> None:
        content = encode_evaluation_task(
            encode_parameters(self._version(task.version)),
            model_version=task.version,
            split=task.split,
            run=self._parts.settings.run.name,
        )
        self._ask(task, content, "evaluate")

    def _ask(self, task: OpenTask, content: Records, kind: str) -> bool:
        return self._parts.mail.ask(
            content,
            node_id=self._parts.roster.members[task.hospital_id].node_id,
            kind=kind,
            hospital_id=task.hospital_id,
            version=task.version,
            split=task.split,
            number=task.number,
        )

    def _is_kept(self, version: int) -> bool:
        return version == self._parts.model.version or self._parts.store.has_version(version)

    def _version(self, version: int) -> Parameters:
        model = self._parts.model
        return model.parameters if version == model.version else self._parts.store.load_version(version)


def _not_ready(answer: Content) -> RefusalError:
    found = type(answer).__name__
    return RefusalError(RefusalCode.MALFORMED, f"Expected that the result is ready again, found {found}.")
