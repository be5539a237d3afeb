"""One federation on the virtual clock: its curve over virtual time, and what its last model does for every hospital."""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

from client_app.main import app as client_app
from deploy.experiments.cells import Cell, Result
from federation.config import Configuration, flatten, parse_configuration
from federation.datasets.sites import load_site
from federation.metrics import predict
from federation.models import build_empty_model
from federation.parameters import write_parameters
from server_app.run_folder import RunFolder
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.summary import Summary

Point = tuple[float, float]
"""Virtual time and accuracy."""

SHARE_OF_PLATEAU, HELD = 0.97, 3
"""A run has learnt when the mean of `HELD` evaluations is at `SHARE_OF_PLATEAU` of the plateau of FedAvg."""

_LAST_SHARE = 4
_RUN: dict[str, Any] = {
    "run.hospital-evaluation": False,
    "run.allow-silent-hospitals": True,
    "run.keep-checkpoints": 1,
    "aggregation.give-up-s": 1e9,
}


def timed_cell(name: str, settings: dict[str, Any], *, seconds: Sequence[float], seed: int, data_root: str) -> Cell:
    """Return the cell that runs one federation on the virtual clock.

    Args:
        name: of the cell.
        settings: dotted keys that differ from the defaults.
        seconds: virtual seconds of a training task, one per hospital.
        seed: of the run, and of the partition unless `data.seed` is set.
        data_root: folder with the subfolder `medmnist`, or empty to download.
    """
    root = str(Path(data_root) / "medmnist") if data_root else ""
    own = {"run.seed": seed, "run.name": name, "run.hospitals": len(seconds), "data.root": root}
    return Cell(
        name=name,
        compute=run_timed_federation,
        settings={"train_s": list(seconds), "configuration": {**_RUN, **settings, **own}},
    )


def run_timed_federation(settings: dict[str, Any], folder: Path) -> Result:
    """Run the federation that `settings` describe, and test its last model on every hospital's own test split.

    Returns:
        `curve` of virtual seconds and accuracy on the pooled test images, the last version of a moment only;
        `hospitals`, a list in order of their numbers with `accuracy`, macro `recall`, `examples` and `updates` each,
        and `epsilon` where it is spent; `virtual_s`, `versions`, `updates_applied`, `staleness`, `refused`, `wall_s`.
    """
    root = str((folder / "runs").absolute())
    configuration = parse_configuration({**flatten(Configuration()), **settings["configuration"], "run.root": root})
    place = RunFolder.of(configuration.run)
    shutil.rmtree(place.path, ignore_errors=True)
    timings = [SiteTiming(train_s=seconds, evaluate_s=0.0) for seconds in settings["train_s"]]
    summary = simulate(configuration, client_app, timings)
    return {
        "curve": curve_of(summary),
        "hospitals": score_hospitals(configuration, summary, place.model),
        "virtual_s": summary.virtual_s,
        "versions": summary.model_version,
        "updates_applied": summary.updates_applied,
        "staleness": None if summary.staleness is None else summary.staleness.model_dump(),
        "refused": summary.refused,
        "wall_s": summary.wall_s,
    }


def score_hospitals(configuration: Configuration, summary: Summary, model: Path) -> list[dict[str, Any]]:
    """Return, in order of their numbers, what the run's hospitals gave and how well the model file serves them.

    Args:
        configuration: of the run.
        summary: of the run, which knows every hospital.
        model: the safetensors file with the last version.
    """
    parameters, scored = safetensors.torch.load_file(model), []
    for site, name in enumerate(sorted(summary.per_hospital)):
        own = load_site(configuration.data, site=site, sites=len(summary.per_hospital), seed=configuration.data_seed)
        network = build_empty_model(configuration.model, own.info)
        write_parameters(network, parameters)
        predicted = predict(network, own.test, torch.device("cpu")).argmax(dim=1).numpy()
        item = summary.per_hospital[name]
        scored.append(
            {
                "accuracy": float((predicted == own.test.labels).mean()),
                "recall": macro_recall(predicted, own.test.labels),
                "examples": len(own.train),
                "updates": item.updates,
                "epsilon": item.epsilon_spent,
            }
        )
    return scored


def macro_recall(predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return the mean, over the classes that occur in `labels`, of the share of their images that is recognized.

    Args:
        predicted: classes, shape (N,).
        labels: true classes, shape (N,).
    """
    return statistics.fmean(float((predicted[labels == label] == label).mean()) for label in np.unique(labels))


def curve_of(summary: Summary) -> list[Point]:
    """Return virtual time and central accuracy of the evaluated versions; of those made at one moment the last."""
    last = {point.elapsed_s: point.central.accuracy for point in summary.curve if point.central}
    return [(moment, round(accuracy, 5)) for moment, accuracy in sorted(last.items())]


def plateau(curve: Sequence[Point]) -> float:
    """Return the mean accuracy of the last quarter of `curve`, the initial model not counted."""
    made = [accuracy for _, accuracy in curve[1:]]
    return statistics.fmean(made[-max(1, len(made) // _LAST_SHARE) :])


def time_to(curve: Sequence[Point], target: float, *, mean_of: int = 1) -> float:
    """Return the first time at which the mean of the `mean_of` newest accuracies is at least `target`, or infinity.

    Args:
        curve: (virtual time, accuracy) in order of time.
        target: accuracy to reach.
        mean_of: evaluations that must hold it together; 1 takes the first that does, 3 is fairer to noise.
    """
    for end in range(mean_of, len(curve) + 1):
        if statistics.fmean(accuracy for _, accuracy in curve[end - mean_of : end]) >= target:
            return curve[end - 1][0]
    return math.inf
