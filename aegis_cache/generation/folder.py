"""Images that already exist and may be used: a folder per class, or an NPZ file, drawn without replacement."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from aegis_cache.generation.request import expand_request
from aegis_cache.store.manifest import GeneratorIdentity
from aegis_cache.store.provenance import Provenance
from federation.datasets.npz_file import read_archive
from federation.errors import DataError, GenerationError
from federation.preprocessing import to_unit_interval

FOLDER = "folder"
_SUFFIXES = (".png", ".jpg", ".jpeg")
_CHANNELS = {"L": 1, "RGB": 3}

Read = Callable[[], NDArray[np.uint8]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """The images of one class.

    Attributes:
        digests: sha256 of each image's file or pixels, in the order of their names or places.
        reads: returns each image, uint8, shape (C, H, W).
    """

    digests: list[str]
    reads: list[Read]


class FolderGenerator:
    """Draws from a stock of images; within one call of `generate` none is drawn twice.

    Calls know nothing of each other, so a later one may draw an image again; whoever needs more than one call can give
    asks for everything in one.
    """

    def __init__(
        self,
        stocks: Sequence[Stock],
        class_names: Sequence[str],
        *,
        name: str,
        licence: str = "licensed",
        provenance: Provenance | None = None,
    ) -> None:
        """Draw from `stocks`, one per class in the order of the labels; `read` makes them from files.

        Raises:
            GenerationError: a class has no image.
        """
        empty = [class_name for class_name, stock in zip(class_names, stocks, strict=True) if not stock.reads]
        if empty:
            raise GenerationError(f"Expected images of every class, found none of {empty}: add some.")
        self._stocks, self._class_names = list(stocks), tuple(class_names)
        terms = [self._class_names, [stock.digests for stock in self._stocks]]
        self._identity = GeneratorIdentity(
            kind=FOLDER,
            name=name,
            digest=hashlib.sha256(json.dumps(terms).encode()).hexdigest(),
            settings={"licence": licence, "images": sum(len(stock.reads) for stock in self._stocks)},
            provenance=provenance or Provenance.public(),
        )

    @classmethod
    def read(
        cls,
        path: Path,
        class_names: Sequence[str],
        *,
        licence: str = "licensed",
        provenance: Provenance | None = None,
    ) -> Self:
        """Return the generator of the images at `path`.

        Args:
            path: a folder with one subfolder of PNG and JPEG files per class, named like it; or an NPZ file with
                `images` (uint8, (N, H, W) or (N, H, W, C)), `labels` (whole numbers, (N,) or (N, 1)) and, where these
                are not numbered in the order of `class_names`, its own `class_names`. One size for all; it need not
                be the task's.
            class_names: in the order of the labels.
            licence: under which the images may be used, for people.
            provenance: of the images; None says that they are public.

        Raises:
            GenerationError: classes are missing or left over, or an image is unreadable, deeper than 8 bits, or of
                another size or number of channels than the first.
        """
        stocks = _index_folder(path, class_names) if path.is_dir() else _index_archive(path, class_names)
        return cls(stocks, class_names, name=path.name, licence=licence, provenance=provenance)

    @property
    def identity(self) -> GeneratorIdentity:
        """Which images these are."""
        return self._identity

    def generate(self, labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Return `n` different images of each of `labels`, float32 in [0, 1], shape (L * n, C, H, W).

        Args:
            labels: int64 class indices, shape (L,); a class that stands there twice gets 2 * n different images.
            n: images per entry.
            generator: decides the order.

        Raises:
            GenerationError: a label names no class, a class has fewer images than wanted, or a file has changed.
        """
        wanted = expand_request(labels, n, self._class_names)
        self._check_stock(wanted)
        images: list[NDArray[np.uint8]] = [np.empty(0, np.uint8)] * len(wanted)
        for label in wanted.unique().tolist():
            places = (wanted == label).nonzero().flatten().tolist()
            reads = self._stocks[label].reads
            order = torch.randperm(len(reads), generator=generator).tolist()
            for place, chosen in zip(places, order, strict=False):
                images[place] = reads[chosen]()
        return to_unit_interval(torch.from_numpy(np.stack(images)))

    def _check_stock(self, wanted: Tensor) -> None:
        counts = torch.bincount(wanted, minlength=len(self._stocks)).tolist()
        for name, stock, count in zip(self._class_names, self._stocks, counts, strict=True):
            if count > len(stock.reads):
                raise GenerationError(
                    f"Expected at least {count} images of class {name!r} in {self._identity.name}, found "
                    f"{len(stock.reads)}: add images, or ask for fewer at once."
                )


def _index_folder(folder: Path, class_names: Sequence[str]) -> list[Stock]:
    found = {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    _check_classes(found, class_names, folder)
    expected: tuple[int, ...] | None = None
    stocks = []
    for name in class_names:
        files = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in _SUFFIXES)
        stock = Stock(digests=[], reads=[])
        for file in files:
            content = _content(file)
            shape = _shape(content, file)
            expected = expected or shape
            if shape != expected:
                raise GenerationError(
                    f"Expected every image of shape (C, H, W) = {expected} like the first, found {shape} in {file}: "
                    "bring all to one size and one number of channels."
                )
            stock.digests.append(hashlib.sha256(content).hexdigest())
            stock.reads.append(partial(_read, file, stock.digests[-1]))
        stocks.append(stock)
    return stocks


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise GenerationError(f"Expected a readable image at {file}, found: {error}.") from None


def _shape(content: bytes, file: Path) -> tuple[int, ...]:
    """Return (C, H, W) from the header alone."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            mode, (width, height) = image.mode, image.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise GenerationError(f"Expected a readable image at {file}, found: {error}. Replace or remove it.") from None
    if mode not in _CHANNELS:
        raise GenerationError(f"Expected 8-bit grey (mode L) or RGB in {file}, found mode {mode}: convert it first.")
    return _CHANNELS[mode], height, width


def _read(file: Path, digest: str) -> NDArray[np.uint8]:
    """Return the image, uint8, shape (C, H, W), if it is still the one that was indexed."""
    content = _content(file)
    if hashlib.sha256(content).hexdigest() != digest:
        raise GenerationError(f"Expected {file} as it was when the folder was read, found another content.")
    try:
        with Image.open(io.BytesIO(content)) as image:
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:
        raise GenerationError(f"Expected a readable image at {file}, found: {error}. Replace or remove it.") from None
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1))


def _index_archive(path: Path, class_names: Sequence[str]) -> list[Stock]:
    try:
        archive = read_archive(path)
    except DataError as error:
        raise GenerationError(str(error)) from None
    if not {"images", "labels"} <= archive.keys():
        raise GenerationError(f"Expected the arrays images and labels in {path}, found {sorted(archive)}.")
    images, labels = _check_images(archive["images"], path), _check_labels(archive["labels"], path)
    names = [str(name) for name in archive["class_names"]] if "class_names" in archive else list(class_names)
    _check_classes(set(names), class_names, path)
    if len(labels) != len(images) or (len(labels) and not 0 <= labels.min() <= labels.max() < len(names)):
        raise GenerationError(
            f"Expected one label from 0 to {len(names) - 1} for each of {len(images)} images in {path}, found "
            f"{len(labels)} labels, {np.unique(labels)[:20].tolist()}."
        )
    return [_stock_of(images[labels == names.index(name)]) for name in class_names]


def _stock_of(images: NDArray[np.uint8]) -> Stock:
    return Stock(
        digests=[hashlib.sha256(image.tobytes()).hexdigest() for image in images],
        reads=[partial(np.asarray, image) for image in images],
    )


def _check_images(images: NDArray[Any], path: Path) -> NDArray[np.uint8]:
    """Return images as uint8, shape (N, C, H, W)."""
    shaped = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8 or shaped.ndim != 4 or shaped.shape[3] not in _CHANNELS.values():
        raise GenerationError(
            f"Expected images as uint8 of shape (N, H, W), (N, H, W, 1) or (N, H, W, 3) in {path}, found "
            f"{images.dtype} of shape {images.shape}."
        )
    return np.ascontiguousarray(shaped.transpose(0, 3, 1, 2))


def _check_labels(labels: NDArray[Any], path: Path) -> NDArray[np.int64]:
    if labels.dtype.kind not in "iu" or labels.shape not in (labels.shape[:1], (*labels.shape[:1], 1)):
        raise GenerationError(
            f"Expected labels as whole numbers of shape (N,) or (N, 1) in {path}, found {labels.dtype} of shape "
            f"{labels.shape}."
        )
    return labels.astype(np.int64).reshape(-1)


def _check_classes(found: set[str], class_names: Sequence[str], path: Path) -> None:
    missing, extra = sorted(set(class_names) - found), sorted(found - set(class_names))
    if missing or extra:
        raise GenerationError(
            f"Expected exactly the classes {list(class_names)} in {path}, missing {missing}, not known {extra}: "
            "rename, add or move them."
        )
