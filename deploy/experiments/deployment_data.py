"""Chest X-rays as hospitals hold them: PNG files in a folder per finding, divided among three hospitals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from federation.config import DataConfig
from federation.datasets.image_set import ImageSet
from federation.datasets.sites import load_own_folder, load_site

_NAME = "pneumoniamnist"
_CLASSES = ("normal", "pneumonia")
_BUDGET = 1000.0


def write_share(target: Path, root: str, *, site: int, sites: int, most: int, mark: str = "") -> int:
    """Write a hospital's share of the training split of PneumoniaMNIST as PNG files, and return how many there are.

    Of six images one is for validation and one for tests: files that bring their own split may be scored.

    Args:
        target: its folder.
        root: folder with the MedMNIST files.
        site: which share, counted from 0.
        sites: how many there are.
        most: images that are written at most.
        mark: begin of every file name, by which a file name would be recognized elsewhere.
    """
    share = load_site(DataConfig(name=_NAME, root=root, partition="iid"), site=site, sites=sites, seed=0).train
    return _write(target, share, most, mark, splits=("train", "train", "train", "train", "val", "test"))


def write_public(target: Path, root: str, *, most: int) -> int:
    """Write images that no hospital holds, as a public collection from which caches are filled."""
    return _write(target, load_own_folder(DataConfig(name=_NAME, root=root), seed=0).test, most, "")


def _write(target: Path, images: ImageSet, most: int, mark: str, splits: tuple[str, ...] = ("",)) -> int:
    count = min(most, len(images))
    for number in range(count):
        folder = target / splits[number % len(splits)] / _CLASSES[int(images.labels[number].item())]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.images[number, 0]).save(folder / f"{mark}{number:05d}.png")
    return count


def site_policy(hospital: str, **changes: Any) -> dict[str, Any]:
    """Return the policy of a hospital of the experiment: DP-SGD, masking from a cache of its own, noised scores."""
    policy: dict[str, Any] = {
        "hospital-id": hospital,
        "state-dir": "/var/lib/aegis",
        "keys-dir": "/var/lib/aegis-keys",
        "data": {"id": "chest", "name": "folder", "root": "/data"},
        "privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": _BUDGET, "max-delta": 1e-5},
        "models": {"allowed": ["mlp", "cnn"]},
        "masking": {"cache": "/var/lib/aegis/cache", "required": True, "min-size": 256},
        "evaluation": {"metrics": "noised"},
    }
    return {**policy, **changes}


def run_tables(*, rounds: int, **changes: Any) -> dict[str, Any]:
    """Return the settings of a run: asynchronous, with DP-SGD and masking, on a small network."""
    tables: dict[str, Any] = {
        "data": {"name": "folder"},
        "model": {"name": "mlp", "hidden-units": 64},
        "training": {"optimizer": "sgd", "learning-rate": 0.3, "batch-size": 64},
        "aggregation": {"rule": "buffered", "buffer-size": 2, "rounds": rounds},
        # Noise enough that the longest of these runs stays within a budget that no hospital should grant.
        "privacy": {
            "mechanism": "dp-sgd",
            "epsilon": _BUDGET,
            "noise-multiplier": 4.0,
            "evaluation-noise-multiplier": 20.0,
        },
        "masking": {"mode": "interleaved", "size": "256"},
        "run": {
            "name": "chest",
            "root": "/runs",
            "hospitals": 3,
            "wait-s": 300.0,
            "central-evaluation": False,
            "evaluate-every": 5,
        },
    }
    return {**tables, **changes}
