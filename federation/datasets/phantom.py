"""Synthetic scans with class-dependent lesions, so that a federation can be tried without any patient's data.

Every image is a body ellipse with two organs, a smooth texture and at most one lesion whose form is the class. The
images imitate no real modality and carry no medical meaning.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from federation.config.tables import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.datasets.splitting import split_stratified
from federation.randomness import numpy_stream

Field = NDArray[np.float32]

SIDE = 28
CLASS_NAMES = ("clear", "nodule", "cavity", "ring", "streak", "twin", "cross", "halo")
_BLOCK = 2048


def load_phantom(data: DataConfig, *, seed: int) -> Dataset:
    """Return `data.phantom_examples` images of `data.phantom_classes` equally frequent classes, split and stratified.

    Args:
        data: the number of images and classes, and how hard the lesions are to see.
        seed: decides every pixel.

    Raises:
        DataError: a fraction of `data` is so small that a split would be empty.
    """
    labels = np.arange(data.phantom_examples, dtype=np.int64) % data.phantom_classes
    labels = numpy_stream(seed, "phantom", "labels").permutation(labels)
    blocks = [
        _draw_block(labels[start : start + _BLOCK], data.phantom_difficulty, numpy_stream(seed, "phantom", start))
        for start in range(0, len(labels), _BLOCK)
    ]
    info = DatasetInfo(
        name="phantom",
        task=Task.MULTICLASS,
        class_names=CLASS_NAMES[: data.phantom_classes],
        channels=1,
        height=SIDE,
        width=SIDE,
    )
    return split_stratified(ImageSet(images=np.concatenate(blocks), labels=labels), info, data, seed=seed)


def _draw_block(labels: NDArray[np.int64], difficulty: float, stream: np.random.Generator) -> NDArray[np.uint8]:
    """Return one image per label: uint8, shape (B, 1, 28, 28)."""
    count = len(labels)
    scene = _draw_body(count, stream)
    contrast = _uniform(stream, count, 0.85, 1.15) * np.float32(0.5 - 0.35 * difficulty)
    scene += contrast * _draw_lesions(labels, stream)
    noise = stream.standard_normal((count, SIDE, SIDE), dtype=np.float32)
    scene += np.float32(0.02 + 0.08 * difficulty) * noise
    return np.rint(np.clip(scene, 0, 1) * 255).astype(np.uint8)[:, None]


def _draw_body(count: int, stream: np.random.Generator) -> Field:
    """Return anatomy without lesion or noise: grey values near [0, 0.6], shape (B, 28, 28)."""
    body = _draw_ellipses(count, stream, centre=0.06, axes=(0.75, 0.92))
    texture = _draw_texture(count, stream)
    scene = 0.06 + body * (_uniform(stream, count, 0.3, 0.4) + 0.05 * texture)
    for _ in range(2):
        organ = _draw_ellipses(count, stream, centre=0.45, axes=(0.15, 0.35))
        scene += _uniform(stream, count, -0.06, 0.06) * organ * body
    return scene


def _draw_ellipses(count: int, stream: np.random.Generator, *, centre: float, axes: tuple[float, float]) -> Field:
    """Return soft-edged ellipses in [0, 1], shape (B, 28, 28), at most `centre` off the middle in x and in y."""
    u, v = _place(count, stream, centre)
    radius = np.hypot(u / _uniform(stream, count, *axes), v / _uniform(stream, count, *axes))
    return np.asarray(np.clip((1 - radius) * 6 + 0.5, 0, 1))


def _draw_texture(count: int, stream: np.random.Generator) -> Field:
    """Return three random plane waves per image, in [-1, 1], shape (B, 28, 28)."""
    texture = np.zeros((count, SIDE, SIDE), dtype=np.float32)
    for _ in range(3):
        u, _v = _place(count, stream, 0.0)
        texture += np.sin(u * _uniform(stream, count, 6, 16) + _uniform(stream, count, 0, 2 * np.pi)) / 3
    return texture


def _draw_lesions(labels: NDArray[np.int64], stream: np.random.Generator) -> Field:
    """Return signed lesions in [-1, 1], shape (B, 28, 28), each of the form of its label."""
    u, v = _place(len(labels), stream, 0.3)
    size = _uniform(stream, len(labels), 0.22, 0.28)
    u, v = u / size, v / size
    lesions = np.zeros((len(labels), SIDE, SIDE), dtype=np.float32)
    for label, name in enumerate(CLASS_NAMES):
        chosen = np.flatnonzero(labels == label)
        if name in _LESIONS and chosen.size:
            lesions[chosen] = _LESIONS[name](u[chosen], v[chosen])
    return lesions


def _place(count: int, stream: np.random.Generator, reach: float) -> tuple[Field, Field]:
    """Return coordinates with a random origin and direction per image: two arrays of shape (B, 28, 28).

    Args:
        count: number of images B.
        stream: where the draws come from.
        reach: the furthest the origin lies from the middle, in x and in y; the image spans [-1, 1].
    """
    line = np.linspace(-1, 1, SIDE, dtype=np.float32)
    x = line[None, None, :] - _uniform(stream, count, -reach, reach)
    y = line[None, :, None] - _uniform(stream, count, -reach, reach)
    angle = _uniform(stream, count, 0, np.pi)
    cosine, sine = np.cos(angle), np.sin(angle)
    return x * cosine + y * sine, y * cosine - x * sine


def _uniform(stream: np.random.Generator, count: int, low: float, high: float) -> Field:
    """Return one value per image in [low, high), shape (B, 1, 1), float32 so that images never become float64."""
    return stream.random((count, 1, 1), dtype=np.float32) * np.float32(high - low) + np.float32(low)


def _nodule(u: Field, v: Field) -> Field:
    return np.asarray(np.exp(-(u**2 + v**2)))


def _ring(u: Field, v: Field) -> Field:
    return np.exp(-(((np.hypot(u, v) - 1.3) / 0.4) ** 2))


def _streak(u: Field, v: Field) -> Field:
    return np.exp(-((u / 2.2) ** 2) - (v / 0.45) ** 2)


def _twin(u: Field, v: Field) -> Field:
    return np.exp(-(((np.abs(u) - 1.2) / 0.7) ** 2) - (v / 0.7) ** 2)


_LESIONS: dict[str, Callable[[Field, Field], Field]] = {
    "nodule": _nodule,
    "ring": _ring,
    "streak": _streak,
    "cavity": lambda u, v: -_nodule(u, v),
    "twin": _twin,
    "cross": lambda u, v: np.maximum(_streak(u, v), _streak(v, u)),
    "halo": lambda u, v: -_ring(u, v),
}
