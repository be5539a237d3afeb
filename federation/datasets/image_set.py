"""The shape that every data set takes in memory, whatever it was read from: the vocabulary of `federation.datasets`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray


class Task(StrEnum):
    """What is predicted: one class per image, or any number of labels."""

    MULTICLASS = "multiclass"
    MULTILABEL = "multilabel"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """What a model must know about a data set before it sees an image.

    Attributes:
        name: the data set's name.
        task: what is predicted.
        class_names: one name per class or label.
        channels: 1 (grey) or 3 (RGB).
        height: image height in pixels.
        width: image width in pixels.
    """

    name: str
    task: Task
    class_names: tuple[str, ...]
    channels: int
    height: int
    width: int

    @property
    def classes(self) -> int:
        """The number of classes (or labels)."""
        return len(self.class_names)

    def resized(self, *, channels: int, height: int, width: int) -> DatasetInfo:
        """Return the same description of images of another shape."""
        return replace(self, channels=channels, height=height, width=width)

    @property
    def label_digest(self) -> str:
        """Sha256 of the class names in their order, shortened: parties compare labels without sending them."""
        return hashlib.sha256("\x1f".join(self.class_names).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSet:
    """Images and labels of one split.

    Attributes:
        images: uint8, shape (N, C, H, W).
        labels: int64, shape (N,) class indices, or (N, L) of 0 and 1 for several labels.
        patients: int64, shape (N,), equal where two images show the same patient; None where nobody knows.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    patients: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of images."""
        return int(self.images.shape[0])

    def take(self, indices: NDArray[np.int64] | Sequence[int]) -> ImageSet:
        """Return the images at `indices`, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        patients = None if self.patients is None else self.patients[chosen]
        return ImageSet(images=self.images[chosen], labels=self.labels[chosen], patients=patients)

    @property
    def digest(self) -> str:
        """Sha256 of all images and labels, in order."""
        found = hashlib.sha256(np.ascontiguousarray(self.images).tobytes())
        found.update(np.ascontiguousarray(self.labels).tobytes())
        return found.hexdigest()

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> ImageSet:
        """Return all images of `parts`, in order; their patients only where every part knows its own."""
        patients = [part.patients for part in parts if part.patients is not None]
        return ImageSet(
            images=np.concatenate([part.images for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            patients=np.concatenate(patients) if len(patients) == len(parts) else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A data set, or one hospital's part of it: three disjoint splits.

    Attributes:
        info: what the images and labels are.
        train: images to learn from.
        validation: images to look at during a run.
        test: images to look at once it has ended.
        given_split: whether each image's split came with it and belongs to it for ever. False where it was drawn:
            another seed, or another fraction held out, would move images between the splits.
    """

    info: DatasetInfo
    train: ImageSet
    validation: ImageSet
    test: ImageSet
    given_split: bool = True

    @classmethod
    def of_splits(cls, info: DatasetInfo, splits: Mapping[str, ImageSet], *, given_split: bool) -> Dataset:
        """Return the data set of `splits`, which maps "train", "validation" and "test"."""
        return cls(
            info=info,
            train=splits["train"],
            validation=splits["validation"],
            test=splits["test"],
            given_split=given_split,
        )

    def described(self, info: DatasetInfo) -> Dataset:
        """Return the same splits under another description."""
        return replace(self, info=info)

    def map_splits(self, change: Callable[[ImageSet], ImageSet]) -> Dataset:
        """Return the data set with `change(split)` in place of each split."""
        return replace(self, train=change(self.train), validation=change(self.validation), test=change(self.test))
