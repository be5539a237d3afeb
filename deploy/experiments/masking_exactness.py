"""Whether masking shows, in bytes on the wire and in the ledger; whether gradients in pieces are those of the whole."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aegis_cache.store.provenance import Provenance
from client_app.ledger.inspection import inspect_ledger
from client_app.main import app as client_app
from client_app.masking.logical_batch import Piece, accumulate_gradient, divide
from deploy.experiments.cells import Cell, Result
from deploy.experiments.masking_sources import publish
from federation.config import Configuration, ModelConfig, flatten, parse_configuration
from federation.datasets.image_set import DatasetInfo, Task
from federation.datasets.sites import load_site
from federation.metrics import losses_of
from federation.models import build_model
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming

_HOSPITALS = 3
_SIZE = 128
_BATCH = 270
_MICRO_BATCHES = (1, 7, 64, 100, 256, 1000)
_SHAPES = {"cnn": (1, 28, 28), "mlp": (1, 28, 28), "resnet18": (3, 28, 28)}
_FEDERATION = {
    "data.phantom-examples": 240,
    "data.partition": "iid",
    "model.name": "mlp",
    "training.device": "cpu",
    "run.hospitals": _HOSPITALS,
    "aggregation.rounds": 2,
    "masking.micro-batch": 32,
    "masking.size": str(_SIZE),
}


def exactness_cells() -> list[Cell]:
    """Return the cells that measure bytes and rounding."""
    return [
        Cell(name="bytes", compute=measure_bytes, settings={"mechanisms": ["none", "dp-sgd", "update-gaussian"]}),
        Cell(
            name="exactness",
            compute=measure_exactness,
            settings={"models": list(_SHAPES), "batch": _BATCH, "micro-batches": list(_MICRO_BATCHES)},
        ),
    ]


def measure_bytes(settings: dict[str, Any], folder: Path) -> Result:
    """Return by how many bytes updates, tasks and ledger rows of a masked run are longer, by mechanism.

    Args:
        settings: `mechanisms`.
        folder: not used.
    """
    del folder
    longer = {}
    for mechanism in settings["mechanisms"]:
        with tempfile.TemporaryDirectory() as place:
            plain, masked = (_count(mechanism, mode, Path(place)) for mode in ("none", "interleaved"))
        longer[mechanism] = {key: masked[key] - plain[key] for key in plain}
    return {"longer": longer, "most": max(abs(value) for found in longer.values() for value in found.values())}


def _count(mechanism: str, mode: str, place: Path) -> dict[str, int]:
    flat = {**flatten(Configuration()), **_FEDERATION, "run.root": str(place / mode), "run.name": "bytes"}
    flat |= {"privacy.mechanism": mechanism, "masking.mode": mode, "masking.cache": str(place / "caches")}
    configuration = parse_configuration(flat)
    for site in range(_HOSPITALS):
        held, name = load_site(configuration.data, site=site, sites=_HOSPITALS, seed=0), f"hospital-{site:03d}"
        if not (place / "caches" / name).exists():
            chosen = np.random.default_rng(site).choice(len(held.train), _SIZE)
            # Any images do, since bytes are counted; DP-SGD takes them when they say that they are public.
            publish(
                place / "caches" / name,
                held.train.take(chosen),
                held,
                hospital_id=name,
                data_set="phantom",
                provenance=Provenance.public(),
            )
    summary = simulate(configuration, client_app, [SiteTiming()] * _HOSPITALS)
    sites = place / mode / "bytes" / "sites"
    rows = [
        len(row.body)
        for site in range(_HOSPITALS)
        for row in inspect_ledger(sites, f"hospital-{site:03d}", key_folder=sites / "keys").rows
    ]
    return {"up": summary.bytes_up, "down": summary.bytes_down, "ledger": sum(rows)}


def measure_exactness(settings: dict[str, Any], folder: Path) -> Result:
    """Return the largest difference between a gradient in pieces and that of the whole batch, by model.

    Args:
        settings: `models`, `batch`, `micro-batches`.
        folder: not used.
    """
    del folder
    torch.set_num_threads(1)
    largest = {}
    for name in settings["models"]:
        shape = _SHAPES[name]
        info = DatasetInfo(
            name="noise",
            task=Task.MULTICLASS,
            class_names=tuple("abcdefghijk"),
            channels=shape[0],
            height=shape[1],
            width=shape[2],
        )
        model = build_model(ModelConfig(name=name), info, seed=0)
        generator = torch.Generator().manual_seed(0)
        images = torch.rand((settings["batch"], *shape), generator=generator)
        labels = torch.randint(0, info.classes, (settings["batch"],), generator=generator)
        whole = _gradient(model, images, labels, settings["batch"])
        differences = [
            max(float((one - other).abs().max()) for one, other in zip(whole, parts, strict=True))
            for parts in (_gradient(model, images, labels, size) for size in settings["micro-batches"])
        ]
        largest[name] = dict(zip(map(str, settings["micro-batches"]), differences, strict=True))
    return {"largest": largest, "most": max(max(found.values()) for found in largest.values())}


def _gradient(model: nn.Module, images: Tensor, labels: Tensor, micro_batch: int) -> list[Tensor]:
    weights = torch.full((len(images),), 1 / len(images))
    accumulate_gradient(
        list(model.parameters()),
        lambda batch, wanted: losses_of(model(batch), wanted, Task.MULTICLASS),
        (
            Piece(images=images[at], labels=labels[at], weights=weights[at])
            for at in (slice(part.start, part.stop) for part in divide(len(images), micro_batch))
        ),
    )
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
