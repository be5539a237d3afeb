"""What one federation consists of while it runs; the engine and its helpers share it."""

from __future__ import annotations

from dataclasses import dataclass

from federation.config import Configuration
from server_app.aggregation.rule import AggregationRule
from server_app.aggregation.weighing import Weighing
from server_app.checkpoint import CheckpointStore
from server_app.clock import Clock
from server_app.correspondence import Correspondence
from server_app.evaluation import EvaluationDesk
from server_app.global_model import GlobalModel
from server_app.mirror import LedgerMirror
from server_app.progress import Progress
from server_app.recording import Recording
from server_app.registrar import Registrar
from server_app.roster import Roster
from server_app.update_buffer import UpdateBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one federation.

    Attributes:
        settings: the configuration.
        clock: the engine's time.
        mail: tasks out, answers in.
        registrar: knows who takes part.
        rule: says whom to ask and when to apply.
        weighing: says how much an update weighs.
        buffer: where accepted updates wait.
        model: the global model.
        store: its checkpoints.
        evaluation: asks for scores.
        mirror: follows the hospitals' ledgers.
        recording: keeps updates for the attack harness, if asked to.
    """

    settings: Configuration
    clock: Clock
    mail: Correspondence
    registrar: Registrar
    rule: AggregationRule
    weighing: Weighing
    buffer: UpdateBuffer
    model: GlobalModel
    store: CheckpointStore
    evaluation: EvaluationDesk
    mirror: LedgerMirror
    recording: Recording

    @property
    def progress(self) -> Progress:
        """Counters of the run."""
        return self.mail.progress

    @property
    def roster(self) -> Roster:
        """The enrolled hospitals."""
        return self.registrar.roster
