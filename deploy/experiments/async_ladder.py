"""Chapter of the asynchronous page: noise and asynchrony added one at a time, and what each costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from deploy.experiments.async_chapter import Chapter, Results
from deploy.experiments.async_private import (
    ASYNCHRONOUS,
    BASE,
    DP_SGD,
    HOSPITALS,
    RELEASES,
    ROUNDS,
    SAMPLED,
    SECONDS,
    SLOWNESS,
    SYNCHRONOUS,
    final_accuracy,
)
from deploy.experiments.async_runs import timed_cell
from deploy.experiments.async_settings import Settings, shown
from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim
from deploy.experiments.parts import LADDER_PARTS

COMMAND = "aegis experiment ladder"
SEEDS = (0, 1, 2, 3, 4)
EPSILONS = (8.0, 4.0)
_WHOLE_UPDATE: Settings = {
    "privacy.mechanism": "update-gaussian",
    "privacy.delta": 1e-5,
    "privacy.clip-norm": 1.0,
    "privacy.releases": RELEASES,
    "privacy.epsilon": EPSILONS[0],
}


def _rungs() -> dict[str, tuple[str, Settings]]:
    rungs = {"plain": ("synchronous, no noise", SYNCHRONOUS)}
    for epsilon in EPSILONS:
        noise = {**DP_SGD, "privacy.epsilon": epsilon}
        rungs[f"noise{epsilon:g}"] = (f"+ perturbation, epsilon {epsilon:g}", {**SYNCHRONOUS, **noise})
    rungs["async"] = ("+ asynchrony, no noise", ASYNCHRONOUS)
    for epsilon in EPSILONS:
        noise = {**DP_SGD, "privacy.epsilon": epsilon}
        rungs[f"both{epsilon:g}"] = (f"both, epsilon {epsilon:g}", {**ASYNCHRONOUS, **noise})
    rungs["update"] = ("both, whole updates clipped and noised, epsilon 8", {**ASYNCHRONOUS, **_WHOLE_UPDATE})
    return rungs


RUNGS = _rungs()
"""Title and settings of every rung, in the order of the table."""


def ladder_cells(parts: Sequence[str], data_root: str, source: Path) -> list[Cell]:
    """Return the cells of the ladder if it is among the `parts`, those of the claim first; `source` is not needed."""
    del source
    if "ladder" not in parts:
        return []
    ordered = sorted(RUNGS, key=lambda rung: rung not in ("plain", *(f"both{epsilon:g}" for epsilon in EPSILONS)))
    return [
        timed_cell(_name(rung, seed), {**BASE, **RUNGS[rung][1]}, seconds=SECONDS, seed=seed, data_root=data_root)
        for rung in ordered
        for seed in SEEDS
    ]


def ladder_claims(results: Results) -> list[Claim]:
    """Return the claim: points lost by noise and asynchrony together at epsilon 4, the strictest that counts."""
    losses = {epsilon: loss_points(results, f"both{epsilon:g}") for epsilon in EPSILONS}
    strict = losses[min(EPSILONS)]
    means = ", ".join(f"{statistics.fmean(v.values()):.2f} at epsilon {e:g}" for e, v in losses.items() if v)
    rung = f"both{min(EPSILONS):g}"
    return [
        claim(
            "dp_async_loss_points",
            "<= 3",
            list(strict.values()),
            unit="points",
            command=COMMAND,
            seeds=list(strict),
            cells=[_name(name, seed) for seed in strict for name in ("plain", rung)],
            note=f"synchronous without noise minus asynchronous with DP-SGD, same seed; {means}; the claim is the one "
            f"at epsilon {min(EPSILONS):g}; record level, delta 1e-5, {HOSPITALS} hospitals",
        )
    ]


def loss_points(results: Results, rung: str) -> dict[int, float]:
    """Return by seed the points of test accuracy that `rung` loses against the plain synchronous run."""
    return {
        seed: final_accuracy(results[_name("plain", seed)]) - final_accuracy(results[_name(rung, seed)])
        for seed in SEEDS
        if _name("plain", seed) in results and _name(rung, seed) in results
    }


def ladder_section(results: Results) -> Sequence[str]:
    """Return the section of the page; empty when nothing was measured."""
    rows = [row for rung in RUNGS if (row := _row(results, rung))]
    if not rows:
        return []
    heads = ("rung", "accuracy", "lost", "worst hospital", "largest epsilon", "hours", "staleness", "seeds")
    speeds = ", ".join(f"{factor:g}" for factor in SLOWNESS)
    return [
        "## The ladder: noise and asynchrony, one at a time",
        f"PneumoniaMNIST, {HOSPITALS} hospitals whose tasks take {speeds} minutes in turn, {SAMPLED} at work at a "
        f"time, {ROUNDS * SAMPLED} updates in every row. {shown(BASE)}. Synchronous: {shown(SYNCHRONOUS)}. "
        f"Asynchronous: {shown(ASYNCHRONOUS)}. Perturbation: {shown(DP_SGD)}; every hospital plans its own epsilon "
        f"over {RELEASES} releases and is paused after them. Last row: {shown(_WHOLE_UPDATE)}. Accuracy in percent on "
        "all test images; lost: points below the first row, same seed; hours are virtual, to the last version.",
        "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows]),
    ]


def _name(rung: str, seed: int) -> str:
    return f"ladder-{rung}-{seed}"


def _row(results: Results, rung: str) -> str:
    cells = [results[_name(rung, seed)] for seed in SEEDS if _name(rung, seed) in results]
    if not cells:
        return ""
    lost = list(loss_points(results, rung).values())
    worst = [100 * min(hospital["accuracy"] for hospital in cell["hospitals"]) for cell in cells]
    spent = [hospital["epsilon"] for cell in cells for hospital in cell["hospitals"] if hospital["epsilon"] is not None]
    shown_cells = (
        RUNGS[rung][0],
        _mean([final_accuracy(cell) for cell in cells]),
        _mean(lost) if lost and rung != "plain" else "",
        _mean(worst),
        f"{max(spent):.2f}" if spent else "",
        f"{statistics.fmean(cell['virtual_s'] for cell in cells) / 3600:.1f}",
        f"{statistics.fmean(_staleness(cell) for cell in cells):.1f}",
        str(len(cells)),
    )
    return f"| {' | '.join(shown_cells)} |"


def _mean(values: Sequence[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.2f} ± {spread:.2f}"


def _staleness(cell: Result) -> float:
    return float(cell["staleness"]["mean"]) if cell["staleness"] else 0.0


LADDER = Chapter(command="ladder", parts=LADDER_PARTS, cells=ladder_cells, claims=ladder_claims, render=ladder_section)
