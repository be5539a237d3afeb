"""What the page shows of the straggler tables: times, speed-ups, the worst and the slow hospital, curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from deploy.experiments.async_chapter import Results
from deploy.experiments.async_runs import Point
from deploy.experiments.async_settings import DATA, RULE_TITLES, RULES, TITLES, shown, tuned
from deploy.experiments.async_speedup import FACTORS, Measured, curve, measure
from deploy.experiments.async_tuning import HOSPITALS, SPLIT, TASK_S

PLOT = "03-async-straggler-{factor}x.svg"
_HEADS = (
    "algorithm",
    "reached",
    "held",
    "speed-up",
    "accuracy",
    "worst hospital",
    "slow hospital",
    "staleness",
    "seeds",
)


def straggler_section(results: Results) -> Sequence[str]:
    """Return the sections of the page; empty when nothing was measured."""
    tables = {(data, factor): _table(results, data, factor) for factor in FACTORS for data in DATA}
    if not any(tables.values()):
        return []
    sections = [
        f"## {HOSPITALS} hospitals, one slow",
        f"At most {SPLIT['data.classes-per-hospital']} classes per hospital; a task takes one unit of virtual time, at "
        'hospital 0 as many as the table says. "Reached" is when one evaluation is at 97 % of the plateau that '
        'FedAvg has with the same seed (the mean of its last quarter of rounds), "held" when the mean of three '
        "evaluations in a row is; every version is evaluated, and of those made at one moment the last counts. The "
        'speed-up is the smaller of those by "reached" and by "held": the first helps whom noise favours, the second '
        "whoever makes more versions. Median and range over seeds. Accuracies are of the last model, in percent, on "
        "all test images, at the hospital it serves worst, and at the slow one. A synchronous round lasts as long as "
        "the slowest task whatever is learnt in it, so one run of FedAvg serves both tables.",
    ]
    for factor in FACTORS:
        for data in DATA:
            if table := tables[data, factor]:
                sections += [f"### {TITLES[data]}, {factor} times slower", table]
        sections.append(f"![Accuracy over virtual time]({PLOT.format(factor=factor)})")
    return [*sections, *(_settings(data) for data in DATA)]


def draw_straggler(results: Results, folder: Path) -> None:
    """Draw the curves of every table into `folder`, if there are any."""
    from deploy.experiments.async_plots import draw_curves_over_time

    for factor in FACTORS:
        panels: dict[str, dict[str, list[list[Point]]]] = {}
        for data in DATA:
            seeds = {rule: [item.seed for item in measure(results, data, rule, factor)] for rule in RULES}
            curves = {
                RULE_TITLES[rule]: [curve(results, data, rule, factor, seed) for seed in found]
                for rule, found in seeds.items()
                if found
            }
            panels |= {TITLES[data]: curves} if curves else {}
        if panels:
            path = folder / PLOT.format(factor=factor)
            draw_curves_over_time(panels, path, unit_s=TASK_S, unit="virtual time, tasks of a fast hospital")


def _table(results: Results, data: str, factor: int) -> str:
    rows = [_row(RULE_TITLES[rule], measure(results, data, rule, factor)) for rule in RULES]
    found = [row for row in rows if row]
    return "\n".join([f"| {' | '.join(_HEADS)} |", "|---" * len(_HEADS) + "|", *found]) if found else ""


def _row(title: str, measured: list[Measured]) -> str:
    if not measured:
        return ""
    speedups = [item.speedup for item in measured]
    staleness = [item.cell["staleness"] or {"mean": 0.0, "max": 0} for item in measured]
    ages = f"{statistics.fmean(item['mean'] for item in staleness):.1f}, at most {max(i['max'] for i in staleness)}"
    cells = (
        title,
        _units([item.first_s for item in measured]),
        _units([item.held_s for item in measured]),
        f"{statistics.median(speedups):.1f} ({min(speedups):.1f} to {max(speedups):.1f})",
        _percent([item.accuracy for item in measured]),
        _percent([item.worst for item in measured]),
        _percent([item.slow for item in measured]),
        ages,
        str(len(measured)),
    )
    return f"| {' | '.join(cells)} |"


def _units(seconds: Sequence[float]) -> str:
    median = statistics.median(seconds)
    return "-" if median == math.inf else f"{median / TASK_S:.0f}"


def _percent(shares: Sequence[float]) -> str:
    spread = statistics.stdev(shares) if len(shares) > 1 else 0.0
    return f"{100 * statistics.fmean(shares):.1f} ± {100 * spread:.1f}"


def _settings(data: str) -> str:
    rules = "; ".join(f"{RULE_TITLES[rule]}: {shown(tuned(rule, data), but=DATA[data])}" for rule in RULES)
    return f"{TITLES[data]}: {shown({**DATA[data], **SPLIT})}. {rules}."
