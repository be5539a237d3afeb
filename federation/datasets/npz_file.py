"""NumPy archives of images and labels, either pooled or in the split layout that MedMNIST made common.

Split: `train_images`, `train_labels`, `val_images`, ..., `test_labels`. Pooled: `images`, `labels`. Both may carry
`class_names`, and beside each array of labels one of patients: `train_patients`, `val_patients`, `test_patients`, or
`patients`. Nothing in an archive is unpickled, so a foreign file cannot run code.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federation.config.tables import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.datasets.root import absolute_root
from federation.datasets.splitting import split_pool
from federation.errors import DataError

Archive = Mapping[str, NDArray[Any]]

_PREFIXES = {"train": "train", "validation": "val", "test": "test"}
_SPLIT_KEYS = frozenset(f"{prefix}_{kind}" for prefix in _PREFIXES.values() for kind in ("images", "labels"))
_POOLED_KEYS = frozenset({"images", "labels"})
_PATIENT_KEYS = frozenset({"patients", *(f"{prefix}_patients" for prefix in _PREFIXES.values())})
_CLASS_NAMES = "class_names"


def load_npz_file(data: DataConfig, *, seed: int) -> Dataset:
    """Return the data set in the NPZ file at `data.root`.

    Args:
        data: `root` is the file, or a folder that holds exactly one.
        seed: decides the split of a pooled archive.

    Raises:
        ConfigurationError: `data.root` is empty or relative.
        DataError: the file is missing or damaged, or an array has the wrong name, shape, type or values.
    """
    path = _find_file(absolute_root(data))
    archive = read_archive(path)
    if archive.keys() >= _POOLED_KEYS and not archive.keys() & _SPLIT_KEYS:
        pool = _read_split(archive, "", path)
        return split_pool(pool, _describe(data.name, [pool], archive.get(_CLASS_NAMES), path), data, seed=seed)
    splits = read_splits(archive, path)
    info = _describe(data.name, [*splits.values()], archive.get(_CLASS_NAMES), path)
    return Dataset.of_splits(info, splits, given_split=True)


def read_archive(path: Path) -> Archive:
    """Return the arrays of the NPZ file at `path` that this module knows the meaning of; others are not read.

    Raises:
        DataError: the file cannot be read as an NPZ archive of plain arrays.
    """
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("a single array")
            known = _SPLIT_KEYS | _POOLED_KEYS | _PATIENT_KEYS | {_CLASS_NAMES}
            return {key: archive[key] for key in archive.files if key in known}
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"Expected an NPZ archive of plain arrays at {path}, found: {error}. Write it with numpy.savez_compressed, "
            "without arrays of dtype object."
        ) from error


def read_splits(archive: Archive, path: Path) -> dict[str, ImageSet]:
    """Return `train`, `validation` and `test` of an archive in split layout.

    Args:
        archive: arrays by name.
        path: the archive's file, for messages.

    Raises:
        DataError: an array is missing or has the wrong shape or type, or the splits differ in image or label shape.
    """
    missing = sorted(_SPLIT_KEYS - archive.keys())
    if missing:
        raise DataError(
            f"Expected the arrays {sorted(_SPLIT_KEYS)} or {sorted(_POOLED_KEYS)} in {path}, found {sorted(archive)}: "
            f"add {missing}, or only images and labels to have them split."
        )
    splits = {name: _read_split(archive, f"{prefix}_", path) for name, prefix in _PREFIXES.items()}
    for name, split in splits.items():
        found = (split.images.shape[1:], split.labels.shape[1:])
        expected = (splits["train"].images.shape[1:], splits["train"].labels.shape[1:])
        if found != expected:
            raise DataError(
                f"Expected image shape (C, H, W) and label shape {expected} as in train, found {found} in {name} "
                f"of {path}: bring all splits to one shape."
            )
    return splits


def _find_file(root: Path) -> Path:
    if not root.is_dir():
        return root
    files = sorted(root.glob("*.npz"))
    if len(files) != 1:
        raise DataError(
            f"Expected one .npz file in {root}, found {len(files)}: set data.root to the file itself, or use "
            "data.partition = 'by-file' to simulate one hospital per file."
        )
    return files[0]


def _read_split(archive: Archive, prefix: str, path: Path) -> ImageSet:
    images = _read_images(archive[f"{prefix}images"], f"{prefix}images", path)
    labels = _read_labels(archive[f"{prefix}labels"], f"{prefix}labels", path)
    if len(images) != len(labels) or len(images) == 0:
        raise DataError(
            f"Expected one label for each of one or more images, found {len(images)} {prefix}images and {len(labels)} "
            f"{prefix}labels in {path}: write both arrays again from the same list."
        )
    patients = archive.get(f"{prefix}patients")
    if patients is not None:
        patients = _read_patients(patients, len(images), f"{prefix}patients", path)
    return ImageSet(images=images, labels=labels, patients=patients)


def _read_images(images: NDArray[Any], key: str, path: Path) -> NDArray[np.uint8]:
    """Return images as uint8, shape (N, C, H, W), from (N, H, W) or (N, H, W, C)."""
    if images.dtype != np.uint8:
        raise DataError(
            f"Expected dtype uint8 of {key} in {path}, found {images.dtype}: rescale the grey values to 0..255 first."
        )
    shaped = images[..., None] if images.ndim == 3 else images
    if shaped.ndim != 4 or shaped.shape[3] not in (1, 3):
        raise DataError(
            f"Expected {key} of shape (N, H, W), (N, H, W, 1) or (N, H, W, 3) in {path}, found {images.shape}: "
            "channels come last."
        )
    return np.ascontiguousarray(shaped.transpose(0, 3, 1, 2))


def _read_labels(labels: NDArray[Any], key: str, path: Path) -> NDArray[np.int64]:
    """Return labels as int64: class indices of shape (N,), or 0 and 1 of shape (N, L)."""
    shaped = labels.ndim == 1 or (labels.ndim == 2 and labels.shape[1] > 0)
    if labels.dtype.kind not in "iub" or not shaped:
        raise DataError(
            f"Expected whole numbers of shape (N,), (N, 1) or (N, L) as {key} in {path}, found {labels.dtype} of shape "
            f"{labels.shape}: number the classes from 0."
        )
    numbers = labels.astype(np.int64)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim == 2 and not np.isin(numbers, (0, 1)).all():
        raise DataError(
            f"Expected only 0 and 1 in {key} of shape {labels.shape} in {path}, found values from {numbers.min()} to "
            f"{numbers.max()}: give one column per label, or one class index per image."
        )
    return numbers


def _read_patients(patients: NDArray[Any], count: int, key: str, path: Path) -> NDArray[np.int64]:
    """Return one patient's number per image as int64, shape (N,)."""
    if patients.dtype.kind not in "iu" or patients.shape != (count,):
        raise DataError(
            f"Expected whole numbers of shape ({count},) as {key} in {path}, found {patients.dtype} of shape "
            f"{patients.shape}: number the patients, and give each image its patient's number."
        )
    return patients.astype(np.int64)


def _describe(name: str, splits: list[ImageSet], names: NDArray[Any] | None, path: Path) -> DatasetInfo:
    labels = np.concatenate([split.labels for split in splits])
    _, channels, height, width = splits[0].images.shape
    return DatasetInfo(
        name=name,
        task=Task.MULTICLASS if labels.ndim == 1 else Task.MULTILABEL,
        class_names=_name_classes(labels, path) if names is None else _check_names(labels, names, path),
        channels=channels,
        height=height,
        width=width,
    )


def _name_classes(labels: NDArray[np.int64], path: Path) -> tuple[str, ...]:
    """Return the class numbers as names, refusing gaps: an absent number may be a class that was forgotten."""
    if labels.ndim == 2:
        return tuple(str(column) for column in range(labels.shape[1]))
    present = np.unique(labels)
    if present.size < 2 or not np.array_equal(present, np.arange(present.size)):
        raise DataError(
            f"Expected two or more classes numbered from 0 without gaps in {path}, found {present[:20].tolist()}: "
            "renumber them, or add an array class_names that also names the classes this file has no image of."
        )
    return tuple(str(number) for number in present)


def _check_names(labels: NDArray[np.int64], names: NDArray[Any], path: Path) -> tuple[str, ...]:
    if names.dtype.kind != "U" or names.ndim != 1 or len(set(names.tolist())) != names.size or names.size < 2:
        raise DataError(
            f"Expected class_names to hold two or more different texts in {path}, found {names.dtype} of shape "
            f"{names.shape}: write numpy.array(['first', 'second'])."
        )
    fits = labels.shape[1] == names.size if labels.ndim == 2 else labels.min() >= 0 and labels.max() < names.size
    if not fits:
        found = f"{labels.shape[1]} columns" if labels.ndim == 2 else f"{labels.min()} to {labels.max()}"
        raise DataError(f"Expected labels to fit the {names.size} class_names in {path}, found {found}: name them all.")
    return tuple(str(name) for name in names)
