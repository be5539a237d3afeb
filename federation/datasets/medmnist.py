"""The 2-D MedMNIST sets at 28 pixels, read from their official files and checked against the published checksums."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

from federation.config.tables import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo
from federation.datasets.medmnist_catalogue import MEDMNIST_2D, MedmnistFacts, download_url
from federation.datasets.npz_file import read_archive, read_splits
from federation.datasets.root import absolute_root
from federation.errors import DataError


def load_medmnist(data: DataConfig) -> Dataset:
    """Return the official splits of the set called `data.name`.

    Args:
        data: `root` is the file itself or the folder that holds it under its official name; where it is empty, the
            medmnist package finds or downloads the file in its own folder.

    Raises:
        ConfigurationError: `data.root` is a relative path.
        DataError: the file is missing, cannot be downloaded, or is not the official one.
    """
    facts = MEDMNIST_2D[data.name]
    path = _find_file(data) if data.root else _download(data.name)
    _check_md5(path, data.name, facts)
    splits = read_splits(read_archive(path), path)
    _, channels, height, width = splits["train"].images.shape
    info = DatasetInfo(
        name=data.name,
        task=facts.task,
        class_names=facts.class_names,
        channels=channels,
        height=height,
        width=width,
    )
    return Dataset.of_splits(info, splits, given_split=True)


def _find_file(data: DataConfig) -> Path:
    root = absolute_root(data)
    path = root / f"{data.name}.npz" if root.is_dir() else root
    if not path.exists():
        raise DataError(f"Expected the file {path}, found nothing there: {_by_hand(data.name)}")
    return path


def _download(name: str) -> Path:
    """Return the path of the official file in the folder of the medmnist package, which downloads it if needed."""
    try:
        package = importlib.import_module("medmnist")
    except ImportError:
        raise DataError(
            f"Expected the medmnist package to download {name!r}, found it missing: run `pip install aegis-fl[data]`, "
            "or set data.root to the folder of a file you already have."
        ) from None
    try:
        getattr(package, package.INFO[name]["python_class"])(split="train", download=True)
    except (RuntimeError, OSError) as error:
        raise DataError(f"Expected to download {name!r}, found no way to: {_by_hand(name)}") from error
    return Path(importlib.import_module("medmnist.info").DEFAULT_ROOT) / f"{name}.npz"


def _check_md5(path: Path, name: str, facts: MedmnistFacts) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"Expected a readable file at {path}, found: {error}. Check its permissions.") from error
    if found != facts.md5:
        raise DataError(
            f"Expected md5 {facts.md5} of the official {name} file, found {found} at {path}: delete it and "
            f"{_by_hand(name)} For data of your own use data.name = 'npz'."
        )


def _by_hand(name: str) -> str:
    return f"get {download_url(name)} with a browser, save it as {name}.npz and set data.root to its folder."
