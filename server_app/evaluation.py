"""Evaluation of one version: on the server's images at once, on every idle hospital's by asking it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from federation.config import Configuration
from federation.errors import RefusalCode, RefusalError
from federation.metrics import Scores
from federation.parameters import Parameters
from federation.records.answers import HospitalScores
from federation.records.fields import Records
from federation.records.tasks import encode_evaluation_task
from federation.records.tensors import encode_parameters
from server_app.admission import admit_scores
from server_app.central_evaluation import CentralEvaluator
from server_app.correspondence import Content, Correspondence, expect
from server_app.dispatch import Dispatch
from server_app.global_model import GlobalModel
from server_app.journal import Journal
from server_app.mirror import LedgerMirror
from server_app.progress import OpenEvaluation
from server_app.roster import Roster
from server_app.summary import CurvePoint


class EvaluationDesk:
    """Opens, fills and closes one evaluation at a time.

    Synchronous rules evaluate while nobody trains. Under asynchronous ones training goes on, and a hospital is asked
    when it becomes free; an evaluation then ends when all have answered, or when the next one begins. A hospital may
    have paid for scores that come later: they join the curve all the same, at their version.

    Attributes:
        final: scores of the final model per hospital on its test split.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        mail: Correspondence,
        roster: Roster,
        journal: Journal,
        central: CentralEvaluator | None,
        mirror: LedgerMirror,
    ) -> None:
        """Build the desk; without `central`, only hospitals evaluate."""
        self._settings = configuration.run
        self._rounds = configuration.aggregation.rounds
        self._mail = mail
        self._roster = roster
        self._progress = mail.progress
        self._journal = journal
        self._central = central
        self._mirror = mirror
        self._task: Records | None = None
        self._beside = False
        self.final: dict[str, Scores] = {}

    def open(self, model: GlobalModel, split: str, hospitals: Sequence[str]) -> bool:
        """Start evaluating `model` on `split`; False when that version has been evaluated already, or nobody does."""
        if not self._begin(model, split, hospitals):
            return False
        self._beside = False
        self.ask(hospitals)
        return True

    def open_beside_training(self, model: GlobalModel) -> None:
        """Start evaluating `model` on the validation splits of hospitals as they become free."""
        if self._begin(model, "validation", list(self._roster.members)):
            self._beside = True
            self._close_if_complete()

    def reopen(self, parameters: Parameters) -> None:
        """Go on with the evaluation that was open when the server was killed, of the version with `parameters`."""
        if (now := self._progress.evaluation) is not None:
            self._beside = True
            self._task = encode_evaluation_task(
                encode_parameters(parameters), model_version=now.version, split=now.split, run=self._settings.name
            )

    def ask(self, idle: Sequence[str]) -> list[str]:
        """Ask those of the `idle` hospitals that the open evaluation still wants, and return who was asked."""
        now = self._progress.evaluation
        if now is None or self._task is None:
            return []
        asked = []
        for name in [name for name in idle if name in now.wanted]:
            now.wanted.remove(name)
            if self._send(name, self._task, now):
                now.asked.append(name)
                asked.append(name)
        self._close_if_complete()
        return asked

    def _send(self, name: str, task: Records, now: OpenEvaluation) -> bool:
        """Send the open evaluation to one hospital; count it as lost, and return False, if its node is not known."""
        sent = self._mail.ask(
            task,
            node_id=self._roster.members[name].node_id,
            kind="evaluate",
            hospital_id=name,
            version=now.version,
            split=now.split,
        )
        if not sent:
            lost = RefusalError(RefusalCode.NODE_LOST, "Flower no longer knows its node.")
            self._mail.refuse(_about_scores(lost), name)
        return sent

    def settle(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        """Take the scores of one hospital, or count why there are none."""
        scores = None
        try:
            answered = expect(HospitalScores, answer)
            scores = admit_scores(answered, dispatch)
            self._mirror.book(
                dispatch.hospital_id, answered.declaration, examples=scores.examples, split=dispatch.split
            )
        except RefusalError as error:
            scores = None
            self._mail.refuse(_about_scores(error), dispatch.hospital_id)
        now = self._progress.evaluation
        if now is None or (dispatch.model_version, dispatch.split) != (now.version, now.split):
            if scores is not None:
                self._keep_late(dispatch, scores)
            return
        if dispatch.hospital_id in now.asked:
            now.asked.remove(dispatch.hospital_id)
        if scores is not None:
            now.hospitals[dispatch.hospital_id] = scores
        self._close_if_complete()

    def _keep_late(self, dispatch: Dispatch, scores: Scores) -> None:
        """Note scores whose evaluation is closed, and give them their place in the curve if there is one."""
        name, version, split = dispatch.hospital_id, dispatch.model_version, dispatch.split
        for index, point in enumerate(self._progress.curve):
            if (point.version, "validation") == (version, split):
                hospitals = dict(sorted((point.hospitals | {name: scores}).items()))
                self._progress.curve[index] = point.model_copy(update={"hospitals": hospitals})
        self._mail.record("late-scores", hospital=name, version=version, split=split, **asdict(scores))

    def close(self) -> None:
        """Finish the open evaluation, if there is one: a point of the curve, or the final scores of the hospitals."""
        now, self._progress.evaluation, self._task = self._progress.evaluation, None, None
        if now is None:
            return
        if now.split == "test":
            self.final = dict(sorted(now.hospitals.items()))
            return
        point = CurvePoint(
            version=now.version,
            elapsed_s=now.opened_at,
            central=now.central,
            hospitals=dict(sorted(now.hospitals.items())),
        )
        self._progress.curve.append(point)
        self._mail.record("evaluate", **point.model_dump(mode="json", exclude={"elapsed_s"}))
        self._journal.say("%s", _describe(point, self._rounds))

    def _begin(self, model: GlobalModel, split: str, hospitals: Sequence[str]) -> bool:
        """Close what is open and open the next evaluation; False when there is nothing to do."""
        now = self._progress.evaluation
        if now is not None and (now.version, now.split) == (model.version, split) and self._beside:
            return False
        self.close()
        asked = self._settings.hospital_evaluation or (self._central is not None and split == "validation")
        done = {point.version for point in self._progress.curve} if split == "validation" else set()
        if not asked or model.version in done:
            return False
        central = self._central.score(model.parameters) if self._central and split == "validation" else None
        wanted = list(hospitals) if self._settings.hospital_evaluation else []
        self._progress.evaluation = OpenEvaluation(
            version=model.version, split=split, central=central, wanted=wanted, opened_at=self._mail.now()
        )
        self._task = encode_evaluation_task(
            model.broadcast() if wanted else encode_parameters({}),
            model_version=model.version,
            split=split,
            run=self._settings.name,
        )
        return True

    def _close_if_complete(self) -> None:
        now = self._progress.evaluation
        if self._beside and now is not None and not now.wanted and not now.asked:
            self.close()


def _describe(point: CurvePoint, rounds: int) -> str:
    parts = [f"version {point.version}/{rounds}"]
    if point.central:
        parts.append(f"accuracy {point.central.accuracy:.3f}")
        parts.extend([f"AUROC {point.central.auroc:.3f}"] if point.central.auroc is not None else [])
    if point.hospitals:
        worst = min(point.hospitals, key=lambda name: point.hospitals[name].accuracy)
        parts.append(f"worst {worst} {point.hospitals[worst].accuracy:.3f}")
    return "  ".join([*parts, f"{point.elapsed_s:.1f} s"])


def _about_scores(error: RefusalError) -> RefusalError:
    """Return the refusal under a reason of its own: an evaluation that failed is not an update that was refused."""
    return RefusalError(error.code, error.detail, reason=f"evaluation:{error.reason}")
