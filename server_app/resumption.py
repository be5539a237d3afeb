"""How a killed run goes on: updates that waited are taken back, and open tasks sent again where that is exact.

On the virtual clock hospitals stop with the server, so every open task is sent again as of its old time, and the run
goes on to the same bits. In a deployment a new run of Flower cannot hear answers to the old one: the open tasks are
counted as interrupted, and their hospitals are asked anew.
"""

from __future__ import annotations

from federation.errors import CheckpointError, RefusalCode, RefusalError
from federation.parameters import Parameters
from federation.records.answers import Readiness
from federation.records.tasks import DISCARD
from federation.records.tensors import encode_parameters
from server_app.dispatch import TRAINING_KINDS, Dispatch
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
            CheckpointError: something that waited is damaged, or the version that an open task is based on is missing.
        """
        parts = self._parts
        open_tasks = [task for task in parts.progress.in_flight if task.hospital_id in parts.roster.members]
        self._take_back({task.number for task in open_tasks})
        waiting = set(self._numbers)
        open_tasks = [task for task in open_tasks if task.number not in waiting or task.kind == "evaluate"]
        if parts.clock.replays:
            self._send_again(open_tasks)
        else:
            self._give_up(open_tasks)

    def _take_back(self, open_numbers: set[int]) -> None:
        parts = self._parts
        kept = parts.buffer.restore(parts.model.parameters, parts.progress.consumed)
        self._numbers = [update.number for update, _ in kept]
        for update, declaration in kept:
            try:
                parts.mirror.book(update.hospital_id, declaration, examples=update.examples)
            except RefusalError as error:
                parts.mail.refuse(error, update.hospital_id)
            parts.rule.restore(update)
            parts.mail.record("restore", hospital=update.hospital_id, number=update.number)
        parts.progress.tasks = max([parts.progress.tasks, *self._numbers, *open_numbers])

    def _give_up(self, tasks: list[OpenTask]) -> None:
        self._parts.progress.evaluation = None
        for task in tasks:
            if task.kind in TRAINING_KINDS:
                detail = f"The server was restarted while it worked on version {task.version}."
                self._parts.mail.refuse(RefusalError(RefusalCode.INTERRUPTED, detail), task.hospital_id)

    def _send_again(self, tasks: list[OpenTask]) -> None:
        """Send every open task as of the time when it was sent; afterwards it is the time of the checkpoint."""
        parts, now = self._parts, self._parts.progress.elapsed_s
        if parts.progress.evaluation is not None:
            parts.evaluation.reopen(self._version(parts.progress.evaluation.version))
        decided = [task for task in tasks if task.kind not in ("train", "evaluate")]
        for task in decided:
            self._repeat_decision(task)
        for task in tasks:
            parts.clock.set(task.sent_at)
            if task.kind == "train":
                self._train(task)
            elif task.kind == "evaluate":
                parts.evaluation.send(task.hospital_id, number=task.number)
        parts.mail.in_flight.sort([task.number for task in tasks])
        parts.clock.set(now)

    def _repeat_decision(self, task: OpenTask) -> None:
        """Let the hospital train again until it is ready, then tell it once more what becomes of the result."""
        parts = self._parts
        parts.clock.set(task.began_at)
        self._train(task)
        received = parts.mail.receive(parts.settings.aggregation.give_up_s)
        if received is None or not isinstance(received[1], Readiness):
            raise CheckpointError(f"Expected {task.hospital_id} to be ready again, found {received}.")
        ready: Dispatch = received[0]
        parts.clock.set(task.sent_at)
        self._intake.decide(ready, task.kind)
        if task.kind != DISCARD:
            parts.rule.resend(task.hospital_id, task.version)

    def _train(self, task: OpenTask) -> None:
        parts, name = self._parts, task.hospital_id
        arrays = encode_parameters(self._version(task.version))
        parts.mail.ask(
            encode_task(parts.settings, arrays, version=task.version, hospital_id=name),
            node_id=parts.roster.members[name].node_id,
            kind="train",
            hospital_id=name,
            version=task.version,
            number=task.number,
        )
        parts.rule.resend(name, task.version)

    def _version(self, version: int) -> Parameters:
        model = self._parts.model
        return model.parameters if version == model.version else self._parts.store.load_version(version)
