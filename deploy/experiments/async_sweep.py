"""Chapter of the asynchronous page: noise level against decay, and which decay to choose at which noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from deploy.experiments.async_chapter import Chapter, Results
from deploy.experiments.async_private import ASYNCHRONOUS, BASE, DP_SGD, HOSPITALS, SECONDS, final_accuracy
from deploy.experiments.async_runs import timed_cell
from deploy.experiments.cells import Cell
from deploy.experiments.claims import Claim
from deploy.experiments.parts import SWEEP_PARTS

SEEDS = (0, 1, 2)
NOISES: dict[str, float | None] = {"none": None, "8": 8.0, "6": 6.0, "4": 4.0}
"""Epsilon by name of the noise level."""

DECAYS = (0.85, 0.9, 0.93, 0.95, 1.0)
PLOT = "03-async-sweep.svg"


def sweep_cells(parts: Sequence[str], data_root: str, source: Path) -> list[Cell]:
    """Return the cells of the sweep if it is among the `parts`; the source tree is not needed."""
    del source
    if "sweep" not in parts:
        return []
    cells = []
    for noise, epsilon in NOISES.items():
        private = {} if epsilon is None else {**DP_SGD, "privacy.epsilon": epsilon}
        for decay in DECAYS:
            settings = {**BASE, **ASYNCHRONOUS, **private, "aggregation.staleness-alpha": decay}
            for seed in SEEDS:
                name = _name(noise, decay, seed)
                cells.append(timed_cell(name, settings, seconds=SECONDS, seed=seed, data_root=data_root))
    return cells


def no_claims(results: Results) -> list[Claim]:
    """Return no claim: the sweep recommends, it promises nothing."""
    del results
    return []


def mean_accuracy(results: Results, noise: str, decay: float) -> float | None:
    """Return the mean test accuracy over the seeds in percent, or None when one is missing."""
    names = [_name(noise, decay, seed) for seed in SEEDS]
    if not all(name in results for name in names):
        return None
    return statistics.fmean(final_accuracy(results[name]) for name in names)


def sweep_section(results: Results) -> Sequence[str]:
    """Return the section of the page; empty when nothing was measured."""
    table = {noise: [mean_accuracy(results, noise, decay) for decay in DECAYS] for noise in NOISES}
    if all(value is None for row in table.values() for value in row):
        return []
    rows = [f"| {' | '.join(('epsilon', *(f'alpha {d:g}' for d in DECAYS), 'recommended'))} |"]
    rows.append("|---" * (len(DECAYS) + 2) + "|")
    for noise, values in table.items():
        shown = ["" if value is None else f"{value:.2f}" for value in values]
        rows.append(f"| {' | '.join((noise, *shown, _recommend(results, noise)))} |")
    return [
        "## Noise against decay",
        f"The asynchronous rungs of the ladder, {HOSPITALS} hospitals, at every noise level and decay of the "
        f"exponential staleness factor alpha^s: test accuracy in percent, mean of {len(SEEDS)} seeds. Recommended: the "
        "best of the row, and with it every decay within one standard error of it, which these seeds cannot rank.",
        f"![Accuracy by noise and decay]({PLOT})",
        "\n".join(rows),
    ]


def draw_sweep(results: Results, folder: Path) -> None:
    """Draw the heat map into `folder` once every cell is finished."""
    table = [[mean_accuracy(results, noise, decay) for decay in DECAYS] for noise in NOISES]
    values = [[value for value in row if value is not None] for row in table]
    if all(len(row) == len(DECAYS) for row in values):
        from deploy.experiments.async_plots import draw_heat_map

        rows = ["no noise" if epsilon is None else f"epsilon {epsilon:g}" for epsilon in NOISES.values()]
        draw_heat_map(values, folder / PLOT, rows=rows, columns=[f"{decay:g}" for decay in DECAYS])


def _name(noise: str, decay: float, seed: int) -> str:
    return f"sweep-{noise}-{decay:g}-{seed}"


def _recommend(results: Results, noise: str) -> str:
    """Return the best decay of a noise level and those that cannot be told from it."""
    means = {decay: mean_accuracy(results, noise, decay) for decay in DECAYS}
    known = {decay: mean for decay, mean in means.items() if mean is not None}
    if len(known) < len(DECAYS):
        return ""
    best = max(known, key=known.__getitem__)
    finals = [final_accuracy(results[_name(noise, best, seed)]) for seed in SEEDS]
    error = statistics.stdev(finals) / len(finals) ** 0.5
    alike = [f"{decay:g}" for decay, mean in known.items() if decay != best and known[best] - mean <= error]
    return f"{best:g}" + (f" ({', '.join(alike)} as good)" if alike else "")


SWEEP = Chapter(
    command="sweep", parts=SWEEP_PARTS, cells=sweep_cells, claims=no_claims, render=sweep_section, draw=draw_sweep
)
