"""The federations of the FedAvg experiment: their settings, and one cell function that runs any of them."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from client_app.main import app as client_app
from deploy.experiments.cells import Cell, Result
from federation.config import Configuration, flatten, parse_configuration
from federation.errors import CheckpointError, ConfigurationError
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.summary import Summary

_COMMON = {"run.hospital-evaluation": False, "run.allow-silent-hospitals": True, "run.keep-checkpoints": 1}

PNEUMONIA = {
    **_COMMON,
    "data.name": "pneumoniamnist",
    "data.partition": "dirichlet",
    "data.dirichlet-alpha": 0.5,
    "data.seed": 0,
    "training.local-epochs": 2,
    "training.learning-rate": 1e-3,
    "training.learning-rate-decay": 0.95,
    "training.augmentation": "shift",
    "training.label-skew": "logit-adjustment",
    "aggregation.rounds": 36,
    "aggregation.weighting": "sqrt",
    "run.hospital-evaluation": True,
    "run.evaluate-every": 6,
}
ORGANA = {
    **_COMMON,
    "data.name": "organamnist",
    "data.partition": "dirichlet",
    "data.dirichlet-alpha": 0.5,
    "training.local-epochs": 1,
    "training.learning-rate": 1e-3,
    "training.learning-rate-decay": 0.9,
    "training.label-skew": "logit-adjustment",
    "aggregation.rounds": 15,
    "run.hospital-evaluation": True,
    "run.evaluate-every": 5,
}
S1 = {
    **_COMMON,
    "data.name": "organamnist",
    "data.partition": "classes",
    "data.classes-per-hospital": 5,
    "training.optimizer": "adam",
    "training.learning-rate": 1e-3,
    "training.local-epochs": 3,
    "training.batch-size": 64,
    "aggregation.rounds": 50,
    "aggregation.sample-count": 10,
    "run.evaluate-every": 1,
}


def federation_cell(name: str, settings: dict[str, Any], *, hospitals: int, seed: int, data_root: str) -> Cell:
    """Return the cell that runs one federation.

    Args:
        name: of the cell.
        settings: dotted keys that differ from the defaults.
        hospitals: number of simulated hospitals.
        seed: of the run.
        data_root: folder with the MedMNIST files, or empty to download.
    """
    everything = {**settings, "run.seed": seed, "run.name": name, "run.hospitals": hospitals, "data.root": data_root}
    return Cell(name=name, compute=run_federation, settings={"hospitals": hospitals, "configuration": everything})


def central_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the same training on one pooled data set: one hospital that holds everything.

    The local optimizer starts fresh every round, as in the federation, so that only the division of data differs.
    """
    return {**settings, "data.partition": "iid"}


def run_federation(settings: dict[str, Any], folder: Path) -> Result:
    """Run the federation that `settings` describe, or resume it where it has a fitting checkpoint; return its scores.

    Returns:
        `final` scores on the pooled test images, `curve` of (version, accuracy, AUROC), accuracy of the worst and the
        median hospital on its own test images, `wall_s`.
    """
    flat = {**flatten(Configuration()), **settings["configuration"], "run.root": str((folder / "runs").absolute())}
    configuration = parse_configuration(flat)
    sites = [SiteTiming()] * settings["hospitals"]
    try:
        return describe(simulate(parse_configuration({**flat, "run.resume": True}), client_app, sites))
    except (CheckpointError, ConfigurationError):
        return describe(simulate(configuration, client_app, sites))


def describe(summary: Summary) -> Result:
    """Return what the experiment keeps of a summary."""
    accuracies = [item.accuracy for item in summary.per_hospital.values() if item.accuracy is not None]
    worst = summary.worst_hospital
    return {
        "final": {} if summary.final is None else _scores(summary.final.accuracy, summary.final.auroc),
        "curve": [
            {"version": point.version, **_scores(point.central.accuracy, point.central.auroc)}
            for point in summary.curve
            if point.central
        ],
        "worst_hospital": worst,
        "worst_accuracy": summary.per_hospital[worst].accuracy if worst else None,
        "median_accuracy": statistics.median(accuracies) if accuracies else None,
        "updates_applied": summary.updates_applied,
        "wall_s": summary.wall_s,
    }


def _scores(accuracy: float, auroc: float | None) -> dict[str, float | None]:
    return {"accuracy": accuracy, "auroc": auroc}
