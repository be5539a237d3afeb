"""Cells of the leakage experiment: one setting each, attacked in every way that applies to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from attacks.defences.registry import BASELINES
from attacks.evaluation.evaluate import evaluate
from attacks.evaluation.trial import Trial
from attacks.linear_leakage.scale_mia import ScaleMiaCampaign
from attacks.metrics.detector import measure_detectability, measure_linear_detectability
from attacks.metrics.quality import measure_psnr
from attacks.registry import SCALE_MIA, find_attack
from attacks.threat_model import ThreatModel, grant
from attacks.victim import Protection
from attacks.world import as_floats
from deploy.experiments.cells import Cell, Result
from deploy.experiments.leakage_sources import REAL, load_world
from federation.accounting.gaussian import analytic_noise_multiplier
from federation.config import PrivacyConfig, TrainingConfig
from federation.randomness import numpy_stream

BATCHES, SEEDS = 8, (0, 1, 2)
CAPACITY = 1024


def leakage_cell(name: str, data: str, data_root: str, attacks: list[str], **setting: Any) -> Cell:
    """Return a cell that runs `attacks` against one setting.

    Args:
        name: of the cell.
        data: of the data set.
        data_root: folder with the MedMNIST files.
        attacks: names in `attacks.registry`.
        **setting: what differs from the gradient of 64 unprotected images, see `measure_leakage`; `classes` and
            `labels` as `load_world` has them, if they differ from its own.
    """
    known = {"classes", "labels"}
    settings = {
        "data": data,
        "root": data_root,
        "attacks": attacks,
        "source": REAL,
        "masking": "none",
        "size": 0,
        "refresh": "none",
        "mode": "gradient",
        "optimizer": "adam",
        "learning-rate": 1e-3,
        "epochs": 1,
        "mechanism": "none",
        "epsilon": 0.0,
        "baselines": [],
        "clients": 1,
        "renewed": False,
        "identify": False,
        "batches": BATCHES,
        "seeds": list(SEEDS),
    }
    if unknown := set(setting) - known - {key.replace("-", "_") for key in settings}:
        raise ValueError(f"Expected settings of a leakage cell, found {sorted(unknown)}.")
    settings |= {key.replace("_", "-"): value for key, value in setting.items()}
    return Cell(name=name, compute=measure_leakage, settings=settings)


def measure_leakage(settings: dict[str, Any], folder: Path) -> Result:
    """Return what each attack finds, by name of the attack; pictures of the first batch are kept in `folder`.

    Args:
        settings: as `leakage_cell` makes them.
        folder: of the experiment, with the pools.
    """
    torch.set_num_threads(1)
    skew = {key: settings[key] for key in ("classes", "labels") if key in settings}
    world = load_world(settings["data"], settings["root"], settings["source"], folder, **skew)
    trial = make_trial(settings)
    found = {}
    for name in settings["attacks"]:
        attack = find_attack(name, folder / "attacks" / settings["data"])
        single = attack.needs.rounds == 1 and settings["clients"] == 1 and settings["mode"] == "gradient"
        plain = not settings["baselines"] and settings["mechanism"] == "none"
        bins = getattr(attack, "capacity", None) if single and plain else None
        result = evaluate(attack, world, trial, capacity=bins, identify=settings["identify"])
        found[name] = result.as_dict()
        _keep_pictures(folder, settings, name, result.real, result.read)
    return found


def measure_ceiling(settings: dict[str, Any], folder: Path) -> Result:
    """Return what the decoder of Scale-MIA makes of images that no attack stands between.

    Args:
        settings: `data`, `root`.
        folder: of the experiment, with the autoencoder, which is trained if it is not there.
    """
    torch.set_num_threads(1)
    world = load_world(settings["data"], settings["root"], REAL, folder)
    attack = find_attack(SCALE_MIA, folder / "attacks" / settings["data"])
    everything = world.view(TrainingConfig(), numpy_stream(0, "server"), generator=False)
    view = grant(everything, attack.needs, ThreatModel())
    campaign = attack.begin(view)
    if not isinstance(campaign, ScaleMiaCampaign):
        raise TypeError(f"Expected the campaign of Scale-MIA, found {type(campaign).__name__}.")
    images = world.some_real()
    quality = measure_psnr(images.astype(np.float64), campaign.reconstruct(images).clip(0, 1)).capped_db
    return {
        "images": len(images),
        "psnr-db": float(quality.mean()),
        "rr18": float((quality > 18).mean()),
        "rr24": float((quality > 24).mean()),
        "rr30": float((quality > 30).mean()),
    }


def measure_detector(settings: dict[str, Any], folder: Path) -> Result:
    """Return how well a server that has images of the generator tells a cache from real images, seed by seed.

    Args:
        settings: `data`, `root`, `source`, `seeds`.
        folder: of the experiment, with the pools.
    """
    torch.set_num_threads(1)
    world = load_world(settings["data"], settings["root"], settings["source"], folder)
    areas, linear = [], []
    for seed in settings["seeds"]:
        stream = numpy_stream(seed, "detector")
        view = world.view(TrainingConfig(), stream)
        victims = world.draw_victims(512, stream)
        cache = as_floats(world.draw_synthetic(512, victims, stream))
        asked = as_floats(world.real.take(victims)), cache
        known = view.require_auxiliary(), view.require_generated()
        areas.append(measure_detectability(known, asked, seed=seed))
        linear.append(measure_linear_detectability(known, asked))
    return {"area": areas, "linear": linear}


def make_trial(settings: dict[str, Any]) -> Trial:
    """Return the trial that the settings of a cell describe."""
    plan = TrainingConfig(
        optimizer=settings["optimizer"],
        learning_rate=settings["learning-rate"],
        batch_size=64,
        local_epochs=settings["epochs"],
    )
    return Trial(
        mode=settings["mode"],
        plan=plan,
        protection=_protection(settings),
        synthetic=settings["size"],
        refresh=settings["refresh"],
        batches=settings["batches"],
        seeds=tuple(settings["seeds"]),
        clients=settings["clients"],
        renewed=settings["renewed"],
    )


def _protection(settings: dict[str, Any]) -> Protection:
    """Return masking, mechanism and baselines of a cell; the mechanism's noise is that of one release at epsilon."""
    privacy, multiplier = None, 0.0
    if settings["mechanism"] != "none":
        privacy = PrivacyConfig(mechanism=settings["mechanism"], clip_norm=1.0)
        multiplier = analytic_noise_multiplier(settings["epsilon"], 1e-5)
    return Protection(
        mode=settings["masking"],
        privacy=privacy,
        noise_multiplier=multiplier,
        baselines=tuple(BASELINES[name]() for name in settings["baselines"]),
    )


def picture_name(data: str, source: str, masking: str, attack: str) -> str:
    """Return the name of the file with pictures of an attack on a gradient that nothing but masking protects."""
    return f"{data}-{source}-{masking}-{attack}.npz"


def _keep_pictures(
    folder: Path, settings: dict[str, Any], attack: str, real: np.ndarray[Any, Any], read: np.ndarray[Any, Any]
) -> None:
    if settings["baselines"] or settings["mechanism"] != "none" or settings["mode"] != "gradient":
        return
    if "classes" in settings:
        return
    place = (
        folder
        / "pictures"
        / picture_name(settings["data"], settings["source"], f"{settings['masking']}-{settings['size']}", attack)
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    np.savez(place, real=real, read=read)
