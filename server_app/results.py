"""From the progress of a run to its result: `summary.json`, `model.safetensors` and `report.html`."""

from __future__ import annotations

import logging

from federation.config import Configuration, flatten
from federation.durable import write_durably
from federation.metrics import Scores
from federation.parameters import Parameters
from federation.tensor_file import as_pieces
from server_app.guarantees import describe_guarantees
from server_app.influence import mean_factors, size_share_of, staleness_of, weight_share_of
from server_app.ledger_summary import gain_of, summarize_ledger, summarize_scores
from server_app.progress import Contribution, Progress
from server_app.run_folder import RunFolder
from server_app.summary import HospitalSummary, RunStatus, Staleness, Summary

_LOGGER = logging.getLogger("aegis.server")


def summarize(
    configuration: Configuration,
    progress: Progress,
    *,
    engine: str,
    status: RunStatus,
    reason: str,
    final_hospitals: dict[str, Scores],
) -> Summary:
    """Return the summary of a run that has ended.

    Args:
        configuration: the resolved configuration.
        progress: counters and curve.
        engine: "flower" or "virtual".
        status: how it ended.
        reason: why it failed, or empty.
        final_hospitals: scores per hospital on its test split; empty when the run did not get that far.
    """
    hospitals = {
        name: _hospital(name, configuration, progress, final_hospitals.get(name))
        for name in configured_hospitals(configuration, progress)
    }
    scored = {name: item.accuracy for name, item in hospitals.items() if item.accuracy is not None}
    newest = progress.curve[-1] if progress.curve else None
    applied = progress.updates_applied
    return Summary(
        run=configuration.run.name,
        engine=engine,
        status=status,
        reason=reason,
        updates_applied=applied,
        model_version=progress.model_version,
        final=newest.central if newest and newest.version == progress.model_version else None,
        per_hospital=hospitals,
        worst_hospital=min(scored, key=lambda name: scored[name]) if scored else None,
        silent_hospitals=[name for name, item in hospitals.items() if not item.updates],
        staleness=Staleness(mean=progress.staleness_total / applied, max=progress.staleness_max) if applied else None,
        refused=progress.refused,
        bytes_up=progress.bytes_up,
        bytes_down=progress.bytes_down,
        wall_s=progress.wall_s,
        virtual_s=progress.elapsed_s if engine == "virtual" else None,
        resumed=progress.resumed,
        curve=progress.curve,
        guarantees=describe_guarantees(
            configuration.privacy, hospitals, masking=configuration.masking, training=configuration.training
        ),
        configuration=flatten(configuration),
    )


def configured_hospitals(configuration: Configuration, progress: Progress) -> list[str]:
    """Return the hospitals that a report must name: those configured or enrolled, and a place for each missing one.

    Where only a number is configured, hospitals that never enrolled have no id; they are called "(never enrolled 1)".
    """
    named = sorted({*configuration.run.configured_ids, *progress.contributions})
    missing = configuration.run.hospitals - len(named)
    return named + [f"(never enrolled {number + 1})" for number in range(missing)]


def write_results(folder: RunFolder, summary: Summary, parameters: Parameters | None) -> None:
    """Write the model (if there is one), the summary and the report."""
    if parameters is not None:
        write_durably(folder.model, as_pieces(parameters))
    write_durably(folder.summary, summary.model_dump_json(indent=2).encode())
    try:
        from server_app.report import write_report
    except ModuleNotFoundError as error:
        _LOGGER.warning("No report.html: %s is not installed; pip install aegis-fl[report].", error.name)
    else:
        write_report(summary, folder.report)


def _hospital(name: str, configuration: Configuration, progress: Progress, scores: Scores | None) -> HospitalSummary:
    known = progress.contributions.get(name, Contribution())
    protected = configuration.privacy.mechanism != "none"
    ledger = summarize_ledger(progress, name) if protected else None
    proven = ledger is not None and ledger.claimable
    gain = gain_of(progress, name) if proven else None
    return HospitalSummary(
        examples=known.examples,
        dispatched=known.dispatched,
        updates=known.updates,
        refused=known.refused,
        accuracy=scores.accuracy if scores else None,
        auroc=scores.auroc if scores else None,
        epsilon_spent=ledger.spent if ledger and proven else None,
        delta=ledger.delta if ledger and proven else None,
        benefit_per_epsilon=gain / ledger.spent if ledger and gain is not None else None,
        ledger=ledger,
        scores=summarize_scores(progress, name) if protected else {},
        weight_share=weight_share_of(progress, name),
        size_share=size_share_of(progress, name, configuration.aggregation.weighting),
        staleness=staleness_of(known),
        factors=mean_factors(progress, name),
        discarded=known.discarded,
    )
