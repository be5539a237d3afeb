"""One run from start to result: enrol, agree on the data, build or resume the model, run the engine, report."""

from __future__ import annotations

from federation.config import Configuration
from federation.datasets.image_set import DatasetInfo, ImageSet
from federation.datasets.sites import load_site, load_union_test
from federation.errors import (
    AegisError,
    CheckpointError,
    ConfigurationError,
    DataError,
    PartitionError,
    RunFailedError,
)
from federation.models import build_model
from federation.parameters import Parameters, read_parameters, require_like
from server_app.aggregation.last_step import with_last_step
from server_app.aggregation.rules import make_rule
from server_app.aggregation.tail_averaging import with_tail_averaging
from server_app.aggregation.weighing import Weighing
from server_app.central_evaluation import CentralEvaluator
from server_app.checkpoint import Checkpoint, CheckpointStore
from server_app.clock import Clock
from server_app.correspondence import Correspondence
from server_app.engine import Engine
from server_app.evaluation import EvaluationDesk
from server_app.global_model import GlobalModel
from server_app.grid_link import GridLink
from server_app.journal import Journal
from server_app.mirror import LedgerMirror
from server_app.parts import Parts
from server_app.progress import Progress
from server_app.recording import Recording
from server_app.registrar import Registrar
from server_app.results import summarize, write_results
from server_app.roster import DataShape, most_common_shape
from server_app.run_folder import RunFolder
from server_app.summary import RunStatus, Summary
from server_app.update_buffer import make_buffer

_NAMED = 12


class Session:
    """Owns the parts of one run and the order in which they come to life."""

    def __init__(self, link: GridLink, clock: Clock, configuration: Configuration) -> None:
        """Prepare a run of `configuration` over `link`; nothing is written yet."""
        self._configuration = configuration
        self._clock = clock
        self._link = link
        self._folder = RunFolder.of(configuration.run)
        self._store = CheckpointStore(self._folder.checkpoints, configuration)
        self._progress = Progress()
        self._model: GlobalModel | None = None
        self._evaluation: EvaluationDesk | None = None

    def run(self) -> None:
        """Run to the end and write the results, whatever the end is.

        Raises:
            AegisError: the run failed, or a configured hospital contributed nothing and that is not allowed.
        """
        with self._folder.held():
            self._run_held(self._start())

    def _run_held(self, checkpoint: Checkpoint | None) -> None:
        status, reason = RunStatus.FAILED, "The server stopped on an error that is not ours; its log has the story."
        with Journal(self._folder.events) as journal:
            mail = Correspondence(self._link, self._clock, self._progress, journal)
            changed = list(checkpoint.changed) if checkpoint else []
            mail.record("resume" if checkpoint else "start", version=self._progress.model_version, changed=changed)
            try:
                self._federate(mail, journal, checkpoint)
                self._require_contributions()
                status, reason = RunStatus.COMPLETED, self._explain_end()
            except AegisError as error:
                reason = str(error)
                raise
            except KeyboardInterrupt:
                status, reason = RunStatus.STOPPED, "Stopped by hand; run.resume=true goes on from here."
                raise
            finally:
                self._finish(mail, status, reason)
            journal.say("completed; report at %s", self._folder.report)

    def _start(self) -> Checkpoint | None:
        resume, rounds = self._configuration.run.resume, self._configuration.aggregation.rounds
        checkpoint = self._store.load_newest() if resume else None
        if checkpoint and checkpoint.progress.model_version > rounds:
            raise CheckpointError(
                f"Expected aggregation.rounds={rounds} to reach version {checkpoint.progress.model_version} at least, "
                "which this run has made already."
            )
        self._folder.prepare(self._configuration)
        if checkpoint:
            self._progress = checkpoint.progress
            self._progress.resumed += 1
            self._progress.empty_rounds = 0
            self._clock.set(self._progress.elapsed_s)
        return checkpoint

    def _federate(self, mail: Correspondence, journal: Journal, checkpoint: Checkpoint | None) -> None:
        settings = self._configuration
        registrar = Registrar(settings.run, mail)
        registrar.gather({} if self._clock.replays else self._progress.roster)
        central = self._load_central_data(len(registrar.roster))
        enrolments = [member.enrolment for member in registrar.roster.members.values()]
        shape = DataShape.of(central[0]) if central else most_common_shape(enrolments)
        registrar.require_shape(shape)
        info = central[0] if central else shape.as_info(settings.data.name)
        names = list(registrar.roster.members)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        journal.say("%d hospitals enrolled: %s%s", len(names), ", ".join(names[:_NAMED]), more)
        self._model = self._make_model(shape, checkpoint)
        evaluator = CentralEvaluator(settings, *central) if central else None
        mirror = LedgerMirror(settings, self._progress)
        self._evaluation = EvaluationDesk(
            settings, mail=mail, roster=registrar.roster, journal=journal, central=evaluator, mirror=mirror
        )
        parts = Parts(
            settings=settings,
            clock=self._clock,
            mail=mail,
            registrar=registrar,
            rule=make_rule(settings.aggregation, seed=settings.run.seed, first_round=self._progress.rounds),
            weighing=Weighing(settings.aggregation, registrar.roster.examples),
            buffer=make_buffer(self._clock, self._folder),
            model=self._model,
            store=self._store,
            evaluation=self._evaluation,
            mirror=mirror,
            recording=Recording(self._folder.updates, settings, info),
        )
        try:
            Engine(parts).run()
        finally:
            self._store.finish()

    def _load_central_data(self, enrolled: int) -> tuple[DatasetInfo, ImageSet] | None:
        data, run = self._configuration.data, self._configuration.run
        if not run.central_evaluation:
            return None
        sites, seed = max(enrolled, run.hospitals), self._configuration.data_seed
        try:
            info = load_site(data, site=0, sites=sites, seed=seed).info
            return info, load_union_test(data, sites=sites, seed=seed)
        except (ConfigurationError, DataError, PartitionError) as error:
            raise DataError(f"{error}\nA server without data needs run.central-evaluation=false.") from None

    def _make_model(self, shape: DataShape, checkpoint: Checkpoint | None) -> GlobalModel:
        info = shape.as_info(self._configuration.data.name)
        network = build_model(self._configuration.model, info, seed=self._configuration.run.seed)
        parameters = read_parameters(network)
        aggregation = self._configuration.aggregation
        optimizer = with_last_step(aggregation, with_tail_averaging(aggregation))
        if checkpoint is None:
            return GlobalModel(parameters, version=0, optimizer=optimizer)
        require_like(checkpoint.parameters, parameters)
        require_like(checkpoint.optimizer_state, optimizer.begin(parameters))
        return GlobalModel(
            checkpoint.parameters,
            version=checkpoint.progress.model_version,
            optimizer=optimizer,
            optimizer_state=checkpoint.optimizer_state,
        )

    def _require_contributions(self) -> None:
        paused = {name for name in self._progress.contributions if self._is_paused(name)}
        silent = [name for name in self._summarize(RunStatus.COMPLETED, "").silent_hospitals if name not in paused]
        if silent and not self._configuration.run.allow_silent_hospitals:
            raise RunFailedError(
                f"Expected an update of every configured hospital, found none of {', '.join(silent)}; "
                "run.allow-silent-hospitals=true accepts that."
            )

    def _is_paused(self, name: str) -> bool:
        return LedgerMirror(self._configuration, self._progress).is_paused(name)

    def _explain_end(self) -> str:
        """Return why the run has fewer versions than planned, or nothing."""
        made, planned = self._progress.model_version, self._configuration.aggregation.rounds
        if made >= planned:
            return ""
        able = sum(not self._is_paused(name) for name in self._progress.contributions)
        who = f"only {able} can still pay for an update" if able else "every hospital has spent its privacy budget"
        if able >= self._configuration.aggregation.min_updates:
            who += ", and too few of these could be reached"
        return f"Version {made} of {planned} is the last: {who}."

    def _finish(self, mail: Correspondence, status: RunStatus, reason: str) -> None:
        mail.note_totals()
        mail.record("finish", status=status.value, reason=reason)
        parameters = self._find_parameters()
        write_results(self._folder, self._summarize(status, reason), parameters)

    def _find_parameters(self) -> Parameters | None:
        """Return the newest whole version: the model's, or the last durable one after a step that failed."""
        if self._model is None or self._model.is_whole:
            return self._model.parameters if self._model else None
        try:
            return self._store.load_newest().parameters
        except CheckpointError:
            return None

    def _summarize(self, status: RunStatus, reason: str) -> Summary:
        return summarize(
            self._configuration,
            self._progress,
            engine=self._clock.engine,
            status=status,
            reason=reason,
            final_hospitals=self._evaluation.final if self._evaluation else {},
        )
