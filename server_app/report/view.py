"""What a report shows, in which order and in which words: numbers become text here, the template only places them.

Numbers keep the scale of `summary.json` (shares in [0, 1]), so that the two can be compared digit by digit. A missing
value is an en dash that says why it is missing. Read next: `server_app.report.template`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from server_app.report.asynchrony import Asynchrony, describe_asynchrony
from server_app.report.bars import participation_plot
from server_app.report.formats import (
    MISSING,
    Value,
    show_bytes,
    show_count,
    show_duration,
    show_epsilon,
    show_share,
)
from server_app.report.hospitals import NO_CLASSES, HospitalRow, RefusalRow, hospital_rows, refusal_rows
from server_app.report.labels import MOST_LINES
from server_app.report.ledgers import LedgerRow, ledger_rows
from server_app.report.masking import Masking, describe_masking
from server_app.report.order import natural_key
from server_app.report.pieces import Figure, Plot
from server_app.report.plots import hospital_plot, loss_plot, quality_plot
from server_app.summary import HospitalSummary, RunStatus, Summary

_NO_CENTRAL = "no evaluation on test images of the server"
_NO_HOSPITAL = "no hospital was evaluated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Banner:
    """How the run ended: the status as word, symbol and sentence."""

    status: str
    symbol: str
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Everything the template shows, ready to be placed."""

    run: str
    subtitle: str
    banner: Banner
    silent: list[str]
    headline: list[Figure]
    figures: list[Figure]
    curves: list[Plot]
    hospitals: list[HospitalRow]
    long_table: bool
    with_benefit: bool
    ledgers: list[LedgerRow]
    masking: Masking | None
    asynchrony: Asynchrony | None
    participation: Plot
    refusals: list[RefusalRow]
    costs: list[Figure]
    guarantees: list[str]
    configuration: list[tuple[str, str]]


def build_view(summary: Summary) -> View:
    """Return what the report of `summary` shows."""
    hospitals = summary.per_hospital
    return View(
        run=summary.run,
        subtitle=_subtitle(summary),
        banner=_banner(summary),
        silent=sorted(summary.silent_hospitals, key=natural_key),
        headline=_headline(summary),
        figures=_figures(summary),
        curves=_curves(summary),
        hospitals=hospital_rows(summary),
        long_table=len(hospitals) > MOST_LINES,
        with_benefit=any(hospital.benefit_per_epsilon is not None for hospital in hospitals.values()),
        ledgers=ledger_rows(summary),
        masking=describe_masking(summary),
        asynchrony=describe_asynchrony(summary),
        participation=_participation(summary),
        refusals=refusal_rows(summary),
        costs=_costs(summary),
        guarantees=list(summary.guarantees),
        configuration=[(key, _setting(summary.configuration[key])) for key in sorted(summary.configuration)],
    )


def _subtitle(summary: Summary) -> str:
    engine = {"flower": "run on Flower", "virtual": "simulated on a virtual clock"}.get(summary.engine, summary.engine)
    count = len(summary.per_hospital)
    return f"{engine}, {count} {'hospital' if count == 1 else 'hospitals'} configured"


def _banner(summary: Summary) -> Banner:
    symbol, default = {
        RunStatus.COMPLETED: ("\u2713", "The run ended as configured."),
        RunStatus.FAILED: ("\u2715", "No reason was recorded."),
        RunStatus.STOPPED: ("\u25a0", "No reason was recorded."),
    }[summary.status]
    return Banner(status=summary.status.value, symbol=symbol, sentence=summary.reason or default)


def _headline(summary: Summary) -> list[Figure]:
    final = summary.final
    note = f"on {show_count(final.examples).text} test images of the server" if final else ""
    auroc = show_share(final.auroc, NO_CLASSES) if final else show_share(None, _NO_CENTRAL)
    return [
        Figure(label="Final accuracy", value=show_share(final.accuracy if final else None, _NO_CENTRAL), note=note),
        Figure(label="Final AUROC", value=auroc, note="macro average over classes" if final and final.auroc else ""),
        _worst(summary),
    ]


def _worst(summary: Summary) -> Figure:
    label = "Accuracy at the worst hospital"
    worst = summary.worst_hospital
    accuracies = {key: h.accuracy for key, h in summary.per_hospital.items() if h.accuracy is not None}
    if worst is None or worst not in accuracies:
        return Figure(label=label, value=show_share(None, _NO_HOSPITAL), subject=worst or "")
    gap = math.fsum(accuracies.values()) / len(accuracies) - accuracies[worst]
    note = f"{max(0.0, gap):.3f} below the mean of hospitals" if len(accuracies) > 1 else "the only hospital evaluated"
    return Figure(label=label, value=show_share(accuracies[worst], ""), note=note, subject=worst, alarming=True)


def _figures(summary: Summary) -> list[Figure]:
    silent, configured = len(summary.silent_hospitals), len(summary.per_hospital)
    return [
        Figure(label="Model versions", value=show_count(summary.model_version), note="0 is the initial model"),
        Figure(label="Updates applied", value=show_count(summary.updates_applied)),
        Figure(
            label="Silent hospitals",
            value=show_count(silent),
            note=f"of {configured} contributed no update",
            alarming=silent > 0,
        ),
        _highest_epsilon(summary.per_hospital),
        Figure(label="Received from hospitals", value=show_bytes(summary.bytes_up)),
        Figure(label="Sent to hospitals", value=show_bytes(summary.bytes_down)),
        Figure(label="Wall time", value=show_duration(summary.wall_s)),
        Figure(label="Virtual time", value=_virtual(summary)),
    ]


def _virtual(summary: Summary) -> Value:
    return show_duration(summary.virtual_s, "the run did not use a virtual clock")


def _highest_epsilon(hospitals: Mapping[str, HospitalSummary]) -> Figure:
    label = "Highest epsilon spent"
    without = sum(hospital.epsilon_spent is None for hospital in hospitals.values())
    accounted = [(h.epsilon_spent, h.delta) for h in hospitals.values() if h.epsilon_spent is not None]
    if not accounted:
        return Figure(label=label, value=show_epsilon(None, None), note="no differential privacy")
    epsilon, delta = max(accounted, key=lambda pair: pair[0])
    note = f"no guarantee at {without} of {len(hospitals)} hospitals" if without else "no hospital spent more"
    return Figure(label=label, value=show_epsilon(epsilon, delta), note=note, alarming=without > 0)


def _curves(summary: Summary) -> list[Plot]:
    curve = summary.curve
    many = len(summary.per_hospital) > MOST_LINES
    return [
        Plot(
            title="Quality per model version",
            caption="Accuracy and AUROC on the test images of the server.",
            svg=quality_plot(curve),
            empty="The run holds no evaluation on test images of the server.",
        ),
        Plot(
            title="Loss per model version",
            caption="Mean cross-entropy in nats on the test images of the server.",
            svg=loss_plot(curve),
            empty="The run holds no evaluation.",
        ),
        Plot(
            title="Accuracy at the hospitals",
            caption="Each hospital on its own validation images"
            + ("; the band holds the middle 80 % of hospitals." if many else "; the mean weighs each equally."),
            svg=hospital_plot(curve, summary.worst_hospital),
            empty="No hospital was evaluated during the run.",
        ),
    ]


def _participation(summary: Summary) -> Plot:
    return Plot(
        title="Participation",
        caption="What became of the training tasks sent to each hospital.",
        svg=participation_plot(summary.per_hospital),
        empty="The run has no configured hospital.",
    )


def _costs(summary: Summary) -> list[Figure]:
    updates, staleness = summary.updates_applied, summary.staleness
    none_applied = Value(text=MISSING, title="no update was applied", missing=True)
    return [
        Figure(label="Received from hospitals", value=show_bytes(summary.bytes_up), note="payload"),
        Figure(label="Sent to hospitals", value=show_bytes(summary.bytes_down), note="payload"),
        Figure(
            label="Traffic per applied update",
            value=show_bytes((summary.bytes_up + summary.bytes_down) // updates) if updates else none_applied,
            note="both directions, refused updates included",
        ),
        Figure(
            label="Staleness of applied updates",
            value=Value(text=f"{staleness.mean:.2f}") if staleness else none_applied,
            note=f"versions on average, at most {staleness.max}" if staleness else "",
        ),
        Figure(label="Wall time", value=show_duration(summary.wall_s), note="real time"),
        Figure(label="Virtual time", value=_virtual(summary), note="clock of the simulation"),
        Figure(label="Restarts from a checkpoint", value=show_count(summary.resumed)),
    ]


def _setting(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
