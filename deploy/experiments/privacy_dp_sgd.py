"""What our DP-SGD costs against Opacus as it comes: noise of the operating system's against noise of a global seed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from client_app.dp_sgd import train_with_dp_sgd
from client_app.noise.cryptographic import CryptographicNoise
from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim
from deploy.experiments.stock_opacus import time_stock_epoch
from federation.config import ModelConfig, PrivacyConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.models import build_model

_COMMAND = "aegis experiment privacy"
_MODES = ("hooks", "ghost")
_INFO = DatasetInfo(
    name="noise",
    task=Task.MULTICLASS,
    class_names=tuple(f"class {number}" for number in range(11)),
    channels=1,
    height=28,
    width=28,
)


def dp_sgd_cells(*, images: int = 1024, repetitions: int = 7) -> list[Cell]:
    """Return one cell per way of getting gradients, hooks and ghost clipping.

    Args:
        images: per epoch.
        repetitions: pairs of epochs, at least 1; one more is run first and not counted.
    """
    common = {"images": images, "repetitions": repetitions, "batch_size": 64, "model": "cnn"}
    return [
        Cell(name=f"dp-sgd-epoch-{mode}", compute=measure_epoch_ratio, settings={"mode": mode, **common}, alone=True)
        for mode in _MODES
    ]


def dp_sgd_claims(results: Mapping[str, Result]) -> list[Claim]:
    """Return the claim on the epoch's cost; the target is for hooks, ghost clipping is told in the note."""
    hooks, ghost = (results.get(f"dp-sgd-epoch-{mode}") for mode in _MODES)
    note = "epoch of DP-SGD, cryptographic noise, over the same epoch of stock Opacus; cnn, Poisson batches of 64"
    if ghost is not None:
        note += f"; median {statistics.median(ghost['ratios']):.2f} under ghost clipping, where less hides the noise"
    medians = [] if hooks is None else [statistics.median(hooks["ratios"])]
    cells = [f"dp-sgd-epoch-{mode}" for mode in _MODES if f"dp-sgd-epoch-{mode}" in results]
    return [claim("dpsgd_epoch_ratio", "<= 1.10", medians, unit="x", command=_COMMAND, note=note, cells=cells)]


def measure_epoch_ratio(settings: dict[str, Any], folder: Path) -> Result:
    """Return both times per epoch and their ratio, pair by pair; the two alternate, so that a drift cancels out.

    One thread, the same fresh network, images, expected batch and optimizer. Ours counts its checks of the network,
    done once an update; neither counts the making of the network.
    """
    del folder
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pairs = [_measure_pair(settings) for _ in range(settings["repetitions"] + 1)][1:]
    finally:
        torch.set_num_threads(before)
    ratios = [pair["ours_s"] / pair["stock_s"] for pair in pairs]
    return {"pairs": pairs, "ratios": ratios, "median_ratio": statistics.median(ratios)}


def _measure_pair(settings: dict[str, Any]) -> dict[str, float]:
    images = _images(settings["images"])
    plan = TrainingConfig(batch_size=settings["batch_size"])
    privacy = PrivacyConfig(mechanism="dp-sgd", grad_sample=settings["mode"])
    stock_s, steps = time_stock_epoch(
        build_model(ModelConfig(name=settings["model"]), _INFO, seed=0),
        torch.from_numpy(images.images),
        torch.from_numpy(images.labels),
        batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        noise_multiplier=1.0,
        clip_norm=privacy.clip_norm,
        mode=privacy.grad_sample,
    )
    model = build_model(ModelConfig(name=settings["model"]), _INFO, seed=0).to(memory_format=torch.channels_last)
    started = time.perf_counter()
    event = train_with_dp_sgd(
        model,
        images,
        _INFO,
        plan,
        privacy,
        noise_multiplier=1.0,
        noise=CryptographicNoise(),
        generator=torch.Generator().manual_seed(0),
        device=torch.device("cpu"),
    )
    ours_s = time.perf_counter() - started
    # Opacus rounds the number of steps its own way; a step more or less is none of the difference measured here.
    return {"ours_s": ours_s / event.steps, "stock_s": stock_s / steps}


def _images(count: int) -> ImageSet:
    stream = np.random.default_rng(0)
    pixels = stream.integers(0, 256, (count, _INFO.channels, _INFO.height, _INFO.width), dtype=np.uint8)
    return ImageSet(images=pixels, labels=stream.integers(0, _INFO.classes, count))
