"""What the whole product costs on top of the training itself: a federation against a bare torch loop, in one run."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from client_app.main import app as client_app
from deploy.experiments.cells import Cell, Result
from federation.config import Configuration, flatten, parse_configuration
from federation.datasets.sites import load_site
from federation.models import build_model
from server_app.run_folder import RunFolder
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming

_HOSPITALS = 6
_SETTINGS = {
    "data.name": "pneumoniamnist",
    "aggregation.rounds": 2,
    "run.central-evaluation": False,
    "run.hospital-evaluation": False,
    "run.hospitals": _HOSPITALS,
    "run.name": "overhead",
}


def overhead_cell(data_root: str) -> Cell:
    """Return the cell that measures the overhead on PneumoniaMNIST with six hospitals."""
    settings = {"repetitions": 5, "configuration": {**_SETTINGS, "data.root": data_root}}
    return Cell(name="simulate-overhead", compute=measure_overhead, settings=settings, alone=True)


def measure_overhead(settings: dict[str, Any], folder: Path) -> Result:
    """Return the ratio of both times, pair by pair; the two alternate, so that a drifting machine cancels out.

    Both count from the first training task to the last result, data in memory, one thread.
    """
    flat = {**flatten(Configuration()), **settings["configuration"], "run.root": str((folder / "runs").absolute())}
    configuration = parse_configuration(flat)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pairs = []
    for _ in range(settings["repetitions"] + 1):
        product_s = _time_product(configuration)
        pairs.append({"product_s": product_s, "bare_s": _time_bare_loop(configuration)})
    torch.set_num_threads(before)
    ratios = [pair["product_s"] / pair["bare_s"] for pair in pairs[1:]]
    return {"pairs": pairs[1:], "ratios": ratios, "median_ratio": statistics.median(ratios)}


def _time_product(configuration: Configuration) -> float:
    simulate(configuration, client_app, [SiteTiming()] * _HOSPITALS)
    lines = RunFolder.of(configuration.run).events.read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    first = next(event["wall_s"] for event in events if event["event"] == "dispatch")
    last = [event["wall_s"] for event in events if event["event"] == "apply"][-1]
    return float(last - first)


def _time_bare_loop(configuration: Configuration) -> float:
    """Do the same optimizer steps on the same images, and nothing else."""
    sets = [_tensors(configuration, site) for site in range(_HOSPITALS)]
    info = load_site(configuration.data, site=0, sites=_HOSPITALS, seed=configuration.data_seed).info
    model = build_model(configuration.model, info, seed=0).to(memory_format=torch.channels_last)
    loss_of = nn.CrossEntropyLoss()
    started = time.perf_counter()
    for _ in range(configuration.aggregation.rounds):
        for images, labels in sets:
            optimizer = torch.optim.Adam(model.parameters(), lr=configuration.training.learning_rate)
            for _ in range(configuration.training.local_epochs):
                for chosen in torch.randperm(len(images)).split(configuration.training.batch_size):
                    optimizer.zero_grad(set_to_none=True)
                    loss_of(model(images[chosen].float().div_(255)), labels[chosen]).backward()
                    optimizer.step()
    return time.perf_counter() - started


def _tensors(configuration: Configuration, site: int) -> tuple[Tensor, Tensor]:
    split = load_site(configuration.data, site=site, sites=_HOSPITALS, seed=configuration.data_seed).train
    return torch.from_numpy(np.array(split.images)), torch.from_numpy(np.array(split.labels))
