"""Made-up cells of the asynchronous page, with known times and scores."""

from __future__ import annotations

from typing import Any

from deploy.experiments.cells import Cell

LEARNT_AT = {"fedavg": 5, "fedavg-drop": 5, "fedasync": 10, "fedbuff": 8, "ours": 6}
"""Step of the made-up curves at which a rule has learnt; a step is a round for FedAvg and a task for others."""


def curve(learnt_at: int, step_s: float, *, steps: int = 40) -> list[list[float]]:
    """Accuracy 0.5 before `learnt_at`, 0.9 from then on."""
    return [[step * step_s, 0.9 if step >= learnt_at else 0.5] for step in range(steps + 1)]


def made_up(cell: Cell) -> dict[str, Any]:
    """A result as a cell would give it, by its name and settings."""
    settings, seconds = cell.settings["configuration"], cell.settings["train_s"]
    synchronous = settings["aggregation.rule"] == "fedavg"
    rule = next((name for name in ("fedavg-drop", *LEARNT_AT) if f"-{name}-" in cell.name), "ours")
    step_s = max(seconds) if synchronous and rule == "fedavg" else 60.0
    lost = 0.02 if "both4" in cell.name else 0.01 if "ours" in cell.name else 0.0
    scores = {"accuracy": 0.8 - lost, "recall": 0.85 - lost, "examples": 100, "updates": 7, "epsilon": None}
    points = curve(LEARNT_AT[rule], step_s)
    points[-1][1] -= lost
    return {
        "curve": points,
        "hospitals": [scores] * len(seconds),
        "virtual_s": 40 * step_s,
        "versions": 40,
        "updates_applied": 40,
        "staleness": {"mean": 1.5, "max": 9},
        "refused": {},
        "wall_s": 1.0,
    }
