"""Evaluation of one version: on the server's images at once, on every idle hospital's by asking it."""

from __future__ import annotations

from collections.abc import Sequence

from federation.config import Configuration
from federation.errors import RefusalCode, RefusalError
from federation.metrics import Scores
from federation.records.answers import HospitalScores
from federation.records.tasks import encode_evaluation_task
from server_app.admission import admit_scores
from server_app.central_evaluation import CentralEvaluator
from server_app.correspondence import Content, Correspondence, expect
from server_app.dispatch import Dispatch
from server_app.global_model import GlobalModel
from server_app.journal import Journal
from server_app.mirror import LedgerMirror
from server_app.roster import Roster
from server_app.summary import CurvePoint


class EvaluationDesk:
    """Opens, fills and closes one evaluation at a time.

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
        self._version = 0
        self._split = ""
        self._central_scores: Scores | None = None
        self._hospital_scores: dict[str, Scores] = {}
        self.final: dict[str, Scores] = {}

    def open(self, model: GlobalModel, split: str, hospitals: Sequence[str]) -> bool:
        """Start evaluating `model` on `split`; False when that version has been evaluated already, or nobody does."""
        asked = self._settings.hospital_evaluation or (self._central is not None and split == "validation")
        done = {point.version for point in self._progress.curve} if split == "validation" else set()
        if not asked or model.version in done:
            return False
        self._version, self._split = model.version, split
        self._hospital_scores = {}
        if split == "validation":
            self._central_scores = self._central.score(model.parameters) if self._central else None
        if self._settings.hospital_evaluation:
            content = encode_evaluation_task(
                model.broadcast(), model_version=model.version, split=split, run=self._settings.name
            )
            for name in hospitals:
                node_id = self._roster.members[name].node_id
                if not self._mail.ask(
                    content, node_id=node_id, kind="evaluate", hospital_id=name, version=model.version, split=split
                ):
                    lost = RefusalError(RefusalCode.NODE_LOST, "Flower no longer knows its node.")
                    self._mail.refuse(_about_scores(lost), name)
        return True

    def settle(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        """Take the scores of one hospital, or count why there are none; scores of an older evaluation are dropped."""
        try:
            answered = expect(HospitalScores, answer)
            scores = admit_scores(answered, dispatch)
            self._mirror.book(
                dispatch.hospital_id, answered.declaration, examples=scores.examples, split=dispatch.split
            )
        except RefusalError as error:
            self._mail.refuse(_about_scores(error), dispatch.hospital_id)
            return
        if (dispatch.model_version, dispatch.split) == (self._version, self._split):
            self._hospital_scores[dispatch.hospital_id] = scores

    def close(self) -> None:
        """Finish the open evaluation: a point of the curve, or the final scores of the hospitals."""
        if self._split == "test":
            self.final = dict(sorted(self._hospital_scores.items()))
            return
        self._mail.note_totals()
        point = CurvePoint(
            version=self._version,
            elapsed_s=self._progress.elapsed_s,
            central=self._central_scores,
            hospitals=dict(sorted(self._hospital_scores.items())),
        )
        self._progress.curve.append(point)
        self._mail.record("evaluate", **point.model_dump(mode="json", exclude={"elapsed_s"}))
        self._journal.say("%s", _describe(point, self._rounds))


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
