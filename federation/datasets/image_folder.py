"""PNG and JPEG files in one folder per class, either pooled or below `train`, `val` and `test`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from federation.config.tables import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.datasets.root import absolute_root
from federation.datasets.splitting import split_pool
from federation.errors import DataError

_SUFFIXES = (".png", ".jpg", ".jpeg")
_SPLITS = {"train": "train", "validation": "val", "test": "test"}
_CHANNELS = {"L": 1, "RGB": 3}


def load_image_folder(data: DataConfig, *, seed: int) -> Dataset:
    """Return the images below `data.root`, in `<class>/*.png` or in `{train,val,test}/<class>/*.png`.

    Classes are numbered in name order. Folders that start with a dot and files of other types are passed over.

    Args:
        data: `root` is the folder.
        seed: decides the split of pooled images.

    Raises:
        ConfigurationError: `data.root` is empty or relative.
        DataError: no or one class, a class without images, an unreadable file, or images of mixed sizes or modes.
    """
    root = absolute_root(data)
    folders = {path.name for path in _subfolders(root)}
    if folders & set(_SPLITS.values()):
        return _read_split_layout(root, folders, data.name)
    classes = _class_names(root)
    pool = _read_class_folders(root, classes, template=None)
    return split_pool(pool, _describe(data.name, classes, pool), data, seed=seed)


def _read_split_layout(root: Path, folders: set[str], name: str) -> Dataset:
    if folders != set(_SPLITS.values()):
        raise DataError(
            f"Expected exactly the folders train, val and test in {root}, found {sorted(folders)}: add the missing "
            "ones and move others away, or put all images into one folder per class."
        )
    classes = _class_names(root / "train")
    for folder in _SPLITS.values():
        found = _class_names(root / folder)
        if found != classes:
            raise DataError(
                f"Expected the classes {list(classes)} of train in {root / folder}, found {list(found)}: give every "
                "split the same class folders."
            )
    train = _read_class_folders(root / "train", classes, template=None)
    template = train.images[0]
    held_out = {
        split: _read_class_folders(root / folder, classes, template=template)
        for split, folder in _SPLITS.items()
        if split != "train"
    }
    splits = {"train": train, **held_out}
    return Dataset.of_splits(_describe(name, classes, train), splits, given_split=True)


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"Expected a folder at {folder}, found a file: set data.root to the folder above the classes.")
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _class_names(folder: Path) -> tuple[str, ...]:
    names = tuple(path.name for path in _subfolders(folder))
    if len(names) < 2:
        raise DataError(
            f"Expected two or more class folders in {folder}, found {list(names)}: make one subfolder per class."
        )
    return names


def _read_class_folders(folder: Path, classes: tuple[str, ...], *, template: NDArray[np.uint8] | None) -> ImageSet:
    """Return the images of all class folders, which must have the shape (C, H, W) of `template` or of the first."""
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        files = _image_files(folder / name)
        for file in files:
            image = _read_image(file)
            template = image if template is None else template
            _check_shape(file, image, template)
            images.append(image)
        labels += [label] * len(files)
    return ImageSet(images=np.stack(images), labels=np.array(labels, dtype=np.int64))


def _image_files(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.is_file())
    if not files:
        raise DataError(
            f"Expected at least one {', '.join(_SUFFIXES)} file in the class folder {folder}, found none: add images "
            "or remove the folder."
        )
    return files


def _read_image(file: Path) -> NDArray[np.uint8]:
    """Return one image as uint8, shape (C, H, W)."""
    try:
        with Image.open(file) as image:
            mode, pixels = image.mode, np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"Expected a readable image at {file}, found: {error}. Replace or remove the file.") from error
    if mode not in _CHANNELS:
        raise DataError(
            f"Expected 8-bit grey (mode L) or RGB in {file}, found mode {mode}: convert it first, which for deeper "
            "images means choosing an intensity window."
        )
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1))


def _check_shape(file: Path, image: NDArray[np.uint8], template: NDArray[np.uint8]) -> None:
    if image.shape != template.shape:
        raise DataError(
            f"Expected every image to be {_in_words(template)} like the first, found {_in_words(image)} in {file}: "
            "bring all images to one size and one number of channels."
        )


def _in_words(image: NDArray[np.uint8]) -> str:
    channels, height, width = image.shape
    return f"{height}x{width} pixels with {channels} channel(s)"


def _describe(name: str, classes: tuple[str, ...], images: ImageSet) -> DatasetInfo:
    _, channels, height, width = images.images.shape
    return DatasetInfo(
        name=name, task=Task.MULTICLASS, class_names=classes, channels=channels, height=height, width=width
    )
