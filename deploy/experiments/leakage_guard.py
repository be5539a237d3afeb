"""How often the model guard refuses models that were trained, and how often it finds those that were crafted.

Every version of a federation counts, the fresh one included: of a hospital that trains alone, of three hospitals whose
models are averaged, and of the same with clipped and noised updates. Crafted models come from `attacks.guard_samples`,
on fresh models of the same kinds and images of the same data sets.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attacks.guard_samples import Convolutions, Crafting, Disguise, Measurement, craft_model
from attacks.registry import SCALE_MIA, list_attacks
from attacks.threat_model import ThreatModel, grant
from attacks.world import World
from client_app.model_guard.inspection import inspect_model
from client_app.noise.simulated import SimulatedNoise
from client_app.perturbation import perturb_update
from client_app.training import train_locally
from deploy.experiments.cells import Cell, Result
from federation.config import DataConfig, ModelConfig, PrivacyConfig, TrainingConfig
from federation.datasets.image_set import Dataset
from federation.datasets.sites import load_own_folder
from federation.models import build_model
from federation.parameters import Parameters, read_parameters, subtract, write_parameters
from federation.preprocessing import to_unit_interval
from federation.randomness import numpy_stream

DATA_SETS = ("pneumoniamnist", "organamnist", "retinamnist")
MODELS = ("mlp-64", "mlp-512", "cnn", "linear")
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "learning-rate": 0.001},
    "fast-adam": {"optimizer": "adam", "learning-rate": 0.01},
    "momentum": {"optimizer": "sgd", "learning-rate": 0.05, "momentum": 0.9},
}
VERSIONS = {"alone": 10, "averaged": 8, "noised": 4}
STEPS = {"alone": 6, "averaged": 4, "noised": 4}
_CONVOLUTIONAL = {"alone": 4, "averaged": 2, "noised": 2}
_LARGE = {"versions": {"alone": 3, "averaged": 2, "noised": 2}, "steps": {"alone": 2, "averaged": 1, "noised": 1}}
_BATCH = 64
_LARGE_BATCH = 16
_HOSPITALS = 3
_ATTACKERS_IMAGES = 256
_CPU = torch.device("cpu")

_MEASUREMENTS: tuple[Measurement, ...] = ("mean", "cosine", "random", "smooth")
_CONVOLUTIONS: tuple[Convolutions, ...] = ("as-they-are", "identity", "own-block")
_DISGUISES = {
    "plain": Disguise(),
    "permuted": Disguise(permuted=True),
    "noise-0.001": Disguise(permuted=True, noise=0.001),
    "half": Disguise(permuted=True, share=0.5, noise=0.001, scaled=True),
    "quarter": Disguise(permuted=True, share=0.25, noise=0.05, scaled=True),
}
_STRONG_NOISE = {
    "noise-0.3": Disguise(permuted=True, share=0.25, noise=0.3, scaled=True),
    "noise-1": Disguise(permuted=True, share=0.25, noise=1.0, scaled=True),
}


def guard_cells(data_root: str) -> list[Cell]:
    """Return a cell per data set, model and optimizer that trains, and one per data set that crafts.

    Args:
        data_root: folder with the NPZ files of MedMNIST.
    """
    usual = {"root": data_root, "batch": _BATCH, "seed": 0, "versions": VERSIONS}
    trained: list[dict[str, Any]] = [
        {
            **usual,
            "steps": _CONVOLUTIONAL if model == "cnn" else STEPS,
            "data": data,
            "model": model,
            "optimizer": optimizer,
        }
        for data, model, optimizer in itertools.product(DATA_SETS, MODELS, OPTIMIZERS)
    ]
    trained += [
        {**usual, **_LARGE, "batch": _LARGE_BATCH, "data": data, "model": "resnet18", "optimizer": "adam"}
        for data in DATA_SETS[:1]
    ]
    cells = [
        Cell(name=f"guard-{one['data']}-{one['model']}-{one['optimizer']}", compute=count_alarms, settings=one)
        for one in trained
    ]
    return cells + [
        Cell(
            name=f"guard-{data}-crafted",
            compute=count_detections,
            settings={"root": data_root, "data": data, "models": ["mlp-64", "mlp-512", "cnn", "resnet18"], "seed": 0},
        )
        for data in DATA_SETS
    ]


def count_alarms(settings: dict[str, Any], folder: Path) -> Result:
    """Return how many versions of honest federations were inspected, and which of them were refused, and why.

    Args:
        settings: `data`, `root`, `model`, `optimizer`, `batch`, `seed`, `versions` and `steps` by way of training.
        folder: not used.
    """
    del folder
    torch.set_num_threads(1)
    data = load_own_folder(DataConfig(name=settings["data"], root=settings["root"]), seed=0)
    inspected, alarms = 0, []
    for way in settings["versions"]:
        for version, model in enumerate(_versions(settings, data, way)):
            inspected += 1
            if findings := [str(finding) for finding in inspect_model(model, data.info)]:
                alarms.append({"way": way, "version": version, "findings": findings})
    return {"inspected": inspected, "alarms": alarms}


def count_detections(settings: dict[str, Any], folder: Path) -> Result:
    """Return how many models were crafted and how many of them refused, and by which checks.

    Models with noise as strong as the rows themselves, which spoils what the attack reads, are counted apart.

    Args:
        settings: `data`, `root`, `models`, `seed`.
        folder: not used.
    """
    del folder
    torch.set_num_threads(1)
    data = load_own_folder(DataConfig(name=settings["data"], root=settings["root"]), seed=0)
    chosen = numpy_stream(settings["seed"], "guard", "images").permutation(len(data.validation))[:_ATTACKERS_IMAGES]
    images = to_unit_interval(torch.from_numpy(data.validation.take(chosen).images))
    found: dict[str, dict[str, list[str]]] = {"crafted": {}, "strong-noise": {}}
    for model in settings["models"]:
        for (name, crafting), seed in zip(_craftings(model), itertools.count(settings["seed"])):
            group = "strong-noise" if name.rpartition("/")[2] in _STRONG_NOISE else "crafted"
            found[group][f"{model}/{name}"] = _inspect_crafted(model, data, images, crafting, seed)
    found["crafted"] |= _inspect_attacks(data)
    return {group: _summarize(results) for group, results in found.items()}


def _inspect_attacks(data: Dataset) -> dict[str, list[str]]:
    """Return the checks that find each attack of the harness that changes parameters only."""
    world, found = World.of(data), {}
    for attack in list_attacks():
        if "architecture" in attack.needs.controls or not attack.needs.controls or attack.name == SCALE_MIA:
            continue  # Scale-MIA takes minutes of training; its rows are those of the crafted CNNs.
        everything = world.view(TrainingConfig(), numpy_stream(0, "guard", attack.name))
        view = grant(everything, attack.needs, ThreatModel(rounds=attack.needs.rounds))
        network = attack.begin(view).craft(0, 0).network
        found[f"attack/{attack.name}"] = sorted({finding.check for finding in inspect_model(network, data.info)})
    return found


def _summarize(found: dict[str, list[str]]) -> Result:
    by_check = Counter(check for checks in found.values() for check in checks)
    missed = [name for name, checks in found.items() if not checks]
    return {"made": len(found), "found": len(found) - len(missed), "missed": missed, "by-check": dict(by_check)}


def _inspect_crafted(name: str, data: Dataset, images: Tensor, crafting: Crafting, seed: int) -> list[str]:
    """Return the checks that find a model crafted from a fresh one."""
    model = build_model(_model_config(name), data.info, seed=seed)
    crafted = craft_model(model, images, crafting, torch.Generator().manual_seed(seed))
    write_parameters(model, crafted)
    return sorted({finding.check for finding in inspect_model(model, data.info)})


def _craftings(model: str) -> Iterator[tuple[str, Crafting]]:
    """Yield every way to craft `model` with its name; the last part of the name is the disguise."""
    if model == "resnet18":
        for way in _CONVOLUTIONS[1:]:
            yield f"{way}/plain", Crafting(convolutions=way)
        return
    ways = _CONVOLUTIONS if model == "cnn" else _CONVOLUTIONS[:1]
    for way, measured in itertools.product(ways, _MEASUREMENTS):
        disguises = _DISGUISES | (_STRONG_NOISE if way == "as-they-are" else {})
        for name, disguise in disguises.items():
            yield f"{way}/{measured}/{name}", Crafting(measurement=measured, convolutions=way, disguise=disguise)
    for name in ("plain", "noise-0.001"):
        yield f"one-shot/{name}", Crafting(kind="one-shot", disguise=_DISGUISES[name])
    for name in ("plain", "half"):
        yield f"trap/{name}", Crafting(kind="trap", disguise=_DISGUISES[name])


def _versions(settings: dict[str, Any], data: Dataset, way: str) -> Iterator[nn.Module]:
    """Yield the fresh model and every version that one hospital, or three, make of it: one module, changed in place."""
    model = build_model(_model_config(settings["model"]), data.info, seed=settings["seed"])
    model.to(memory_format=torch.channels_last)
    yield model
    stream = numpy_stream(settings["seed"], "guard", way)
    size = settings["steps"][way] * settings["batch"]
    for version in range(settings["versions"][way]):
        start = read_parameters(model)
        updates = []
        for hospital in range(1 if way == "alone" else _HOSPITALS):
            write_parameters(model, start)
            images = data.train.take(stream.choice(len(data.train), min(size, len(data.train)), replace=False))
            plan = TrainingConfig.model_validate(
                {"device": "cpu", "batch-size": settings["batch"], **OPTIMIZERS[settings["optimizer"]]}
            )
            generator = torch.Generator().manual_seed(version * _HOSPITALS + hospital)
            train_locally(model, images, data.info, plan, generator=generator, device=_CPU)
            update = subtract(read_parameters(model), start)
            updates.append(_protect(update, version * _HOSPITALS + hospital) if way == "noised" else update)
        write_parameters(model, _average(start, updates))
        yield model


def _protect(update: Parameters, seed: int) -> Parameters:
    return perturb_update(update, privacy=PrivacyConfig(), noise_multiplier=0.1, noise=SimulatedNoise(seed))


def _average(start: Parameters, updates: list[Parameters]) -> Parameters:
    return {
        name: value + torch.stack([update[name] for update in updates]).mean(dim=0) for name, value in start.items()
    }


def _model_config(name: str) -> ModelConfig:
    kind, _, units = name.partition("-")
    return ModelConfig.model_validate({"name": kind} | ({"hidden-units": int(units)} if units else {}))
