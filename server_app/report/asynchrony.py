"""The part of a report about asynchrony: who is heard, who is drowned, and whether by age, noise or rarity.

It is shown when hospitals did not work in rounds, or an update was older than the version that it was added to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from federation.config import AggregationConfig
from federation.errors import RefusalCode
from server_app.aggregation.weighing import Weight
from server_app.report.bars import age_plot, share_plot, weight_for_size
from server_app.report.formats import MISSING, Value, show_count, show_reasons, show_share
from server_app.report.labels import MOST_LINES
from server_app.report.order import natural_key
from server_app.report.pieces import Figure, Plot
from server_app.report.rules import describe_rule
from server_app.summary import HospitalSummary, Summary

DROWNED = 0.5
"""A hospital whose weight is less than this part of what its size alone would give it counts as drowned."""

_FACTORS = [field.name for field in fields(Weight)]
_TOO_LATE = (RefusalCode.TOO_STALE.value, RefusalCode.LATE_REPLY.value, RefusalCode.DISCARDED.value)
_CAUSES: Mapping[str, str] = {
    "updates": "seldom heard",
    "staleness": "old",
    "noise": "noisy",
    "shift": "shifted data",
    "anomaly": "abnormal norms",
    "direction": "against the model",
    "balance": "often heard",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class InfluenceRow:
    """One line of the table of influence; `cause` says what costs a drowned hospital most, else it is empty."""

    hospital: str
    cause: str
    updates: Value
    weight: Value
    size: Value
    ratio: Value
    staleness: Value
    factors: list[Value]
    unused: Value
    reasons: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asynchrony:
    """What the section shows: `rule` in sentences, key numbers, drawings, and the table with its `factors`.

    `drowned` is the weight for its size below which a hospital counts as drowned.
    """

    rule: list[str]
    figures: list[Figure]
    plots: list[Plot]
    drowned: float
    factors: list[str]
    rows: list[InfluenceRow]


def describe_asynchrony(summary: Summary) -> Asynchrony | None:
    """Return what the report of `summary` says about asynchrony; None for a run in rounds without an old update."""
    rule = summary.configuration.get("aggregation.rule", AggregationConfig().rule)
    if rule == "fedavg" and not (summary.staleness and summary.staleness.max):
        return None
    hospitals = summary.per_hospital
    factors = [name for name in _FACTORS if any(name in part.factors for part in hospitals.values())]
    return Asynchrony(
        rule=describe_rule(summary.configuration),
        figures=_figures(summary),
        plots=_plots(hospitals),
        drowned=DROWNED,
        factors=factors,
        rows=_rows(hospitals, factors),
    )


def _figures(summary: Summary) -> list[Figure]:
    staleness, hospitals = summary.staleness, summary.per_hospital
    none_applied = Value(text=MISSING, title="no update was applied", missing=True)
    late = sum(summary.refused.get(reason, 0) for reason in _TOO_LATE[:2])
    return [
        Figure(
            label="Staleness of applied updates",
            value=Value(text=f"{staleness.mean:.2f}") if staleness else none_applied,
            note=f"versions on average, at most {staleness.max}" if staleness else "",
        ),
        _least_heard(hospitals),
        Figure(
            label="Refused as too old or too late",
            value=show_count(late),
            note="had left the hospital: under a privacy mechanism their cost is spent" if late else "",
            alarming=late > 0,
        ),
        Figure(
            label="Discarded unreleased",
            value=show_count(sum(part.discarded for part in hospitals.values())),
            note="deleted at the hospital; cost no privacy budget",
        ),
    ]


def _least_heard(hospitals: Mapping[str, HospitalSummary]) -> Figure:
    label, ratios = "Least weight for its size", weight_for_size(hospitals)
    if not ratios:
        return Figure(label=label, value=Value(text=MISSING, title="no update has weight", missing=True))
    least = min(ratios, key=lambda name: (ratios[name], natural_key(name)))
    note = "of the weight that its size alone would give it"
    return Figure(
        label=label,
        value=Value(text=f"{ratios[least]:.2f}"),
        note=note,
        subject=least,
        alarming=_is_drowned(ratios[least]),
    )


def _plots(hospitals: Mapping[str, HospitalSummary]) -> list[Plot]:
    shares = "the weight" if len(hospitals) > MOST_LINES else "the applied updates and of their weight"
    return [
        Plot(
            title="Who the model listens to",
            caption=f"Share of {shares}, beside the share that size alone would give.",
            svg=share_plot(hospitals),
            empty="No update was applied.",
        ),
        Plot(
            title="How old updates were",
            caption="Versions made between sending the model to a hospital and adding its update.",
            svg=age_plot(hospitals),
            empty="No update was applied.",
        ),
    ]


def _rows(hospitals: Mapping[str, HospitalSummary], factors: list[str]) -> list[InfluenceRow]:
    """Return a row for every hospital, the least weight for its size first, those without any known last."""
    ratios, causes = weight_for_size(hospitals), _causes(hospitals)
    ids = sorted(hospitals, key=lambda name: (ratios.get(name, math.inf), natural_key(name)))
    total = sum(part.updates for part in hospitals.values())
    return [_row(name, hospitals[name], total, ratios.get(name), causes.get(name, ""), factors) for name in ids]


def _row(
    name: str, part: HospitalSummary, total: int, ratio: float | None, cause: str, factors: list[str]
) -> InfluenceRow:
    unused = {reason: part.refused.get(reason, 0) for reason in _TOO_LATE}
    staleness = part.staleness
    silent = "no update of it was applied"
    return InfluenceRow(
        hospital=name,
        cause=cause,
        updates=show_share(part.updates / total if total else None, "no update was applied"),
        weight=show_share(part.weight_share, "no update has weight"),
        size=show_share(part.size_share, "never enrolled"),
        ratio=_decimals(ratio, "no weight or no size is known", digits=2),
        staleness=_decimals(
            staleness.mean if staleness else None,
            silent,
            digits=2,
            detail=f"at most {staleness.max}" if staleness else "",
        ),
        factors=[
            _decimals(part.factors.get(factor), silent, digits=0 if factor == "size" else 3) for factor in factors
        ],
        unused=show_count(sum(unused.values())),
        reasons=show_reasons(unused),
    )


def _decimals(value: float | None, why_missing: str, *, digits: int, detail: str = "") -> Value:
    if value is None or not math.isfinite(value):
        return Value(text=MISSING, title=why_missing, missing=True)
    return Value(text=f"{value:.{digits}f}", detail=detail)


def _causes(hospitals: Mapping[str, HospitalSummary]) -> dict[str, str]:
    """Return for every drowned hospital which of its factors is smallest beside the mean over all updates.

    How often it was heard, beside the mean hospital, counts as one of them.
    """
    heard = {name: part for name, part in hospitals.items() if part.size_share}
    total = sum(part.updates for part in heard.values())
    means = {
        factor: math.fsum(part.factors.get(factor, 1.0) * part.updates for part in heard.values()) / total
        for factor in _CAUSES
        if factor != "updates" and total
    }
    drowned = [name for name, ratio in weight_for_size(hospitals).items() if _is_drowned(ratio)]
    found = {}
    for name in drowned:
        part = heard[name]
        beside = {factor: part.factors.get(factor, 1.0) / mean for factor, mean in means.items() if mean}
        beside["updates"] = part.updates * len(heard) / total
        found[name] = _CAUSES[min(beside, key=lambda factor: beside[factor])] if part.updates else "never heard"
    return found


def _is_drowned(ratio: float) -> bool:
    return ratio < DROWNED
