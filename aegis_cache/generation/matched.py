"""Any generator, with its images' mean and covariance brought to those of the hospital's own.

A server that reads updates through planted bins chooses the direction in which it measures images. Where generated
images differ from real ones along any direction, by a little noise in a black corner, it measures along that one, and
every real image stands apart (Fisher's linear discriminant). First and second moments decide what a direction sees.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from aegis_cache.generation.generator import Generator
from aegis_cache.store.manifest import GeneratorIdentity
from aegis_cache.store.provenance import Provenance, Source, combine
from federation.datasets.image_set import ImageSet
from federation.errors import GenerationError
from federation.preprocessing import align, to_unit_interval

MATCHED = "matched"
SHRINKAGE = 0.1
SAMPLE = 2048
_FORMAT = "aegis-matched-1"
_LARGEST_SIDE = 28
_CORRECTIONS = 8
_LEAST_IMAGES, _ENOUGH = 32, 500
_AT_ONCE = 256
_USE = "Mean and covariance of the hospital's images were taken over."


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MomentMatch:
    """An affine map of images, and a clip: x becomes clip(target + (x - origin) A + shift).

    Attributes:
        origin: mean of generated images, float32, shape (D,), on a grid of at most 28 x 28 pixels.
        target: mean of real images, shape (D,).
        matrix: A, shape (D, D).
        shift: what clipping takes from the mean, shape (D,).
        shape: of an image on the grid, (C, h, w).
    """

    origin: Tensor
    target: Tensor
    matrix: Tensor
    shift: Tensor
    shape: tuple[int, int, int]

    @classmethod
    def fit(cls, real: Tensor, generated: Tensor, *, shrinkage: float = SHRINKAGE) -> Self:
        """Return the map from moments of `generated` to those of `real` (CORAL; Sun et al., arXiv 1511.05547).

        A = (S_g + e I)^(-1/2) (S_r + e I)^(1/2) with covariances S and e the shrinkage times the mean variance of real
        pixels, so that directions in which real images hardly vary are left alone instead of blown up.

        Deviation: the mean is corrected once more after clipping to [0, 1].

        Args:
            real: float32 in [0, 1], shape (N, C, H, W).
            generated: the same, shape (G, C, H, W).
            shrinkage: above 0.

        Raises:
            GenerationError: there are fewer than 32 images of a kind, their shapes differ, or `shrinkage` is not
                above 0.
        """
        if not shrinkage > 0:
            raise GenerationError(f"Expected shrinkage={shrinkage} > 0.")
        if min(len(real), len(generated)) < _LEAST_IMAGES or real.shape[1:] != generated.shape[1:]:
            raise GenerationError(
                f"Expected at least {_LEAST_IMAGES} real and generated images of one shape to match moments, found "
                f"{tuple(real.shape)} and {tuple(generated.shape)}."
            )
        wanted, given = _on_grid(real), _on_grid(generated)
        shape = (wanted.shape[1], wanted.shape[2], wanted.shape[3])
        wanted, given = wanted.flatten(1).double(), given.flatten(1).double()
        ridge = shrinkage * float(wanted.var(dim=0).mean()) + torch.finfo(torch.float32).eps
        matrix = _root(given, ridge, -0.5) @ _root(wanted, ridge, 0.5)
        moved = wanted.mean(dim=0) + (given - given.mean(dim=0)) @ matrix
        shift = torch.zeros(wanted.shape[1], dtype=torch.float64)
        for _ in range(_CORRECTIONS):
            shift += wanted.mean(dim=0) - (moved + shift).clamp(0, 1).mean(dim=0)
        return cls(
            origin=given.mean(dim=0).float(),
            target=wanted.mean(dim=0).float(),
            matrix=matrix.float(),
            shift=shift.float(),
            shape=shape,
        )

    def apply(self, images: Tensor) -> Tensor:
        """Return the mapped images; of larger ones the coarse part is mapped and the fine part kept.

        Args:
            images: float32 in [0, 1], shape (B, C, H, W), C as fitted.
        """
        coarse = _on_grid(images)
        flat = self.target + (coarse.flatten(1) - self.origin) @ self.matrix + self.shift
        mapped = flat.view(-1, *self.shape)
        if coarse.shape == images.shape:
            return mapped.clamp(0, 1)
        change = functional.interpolate(mapped - coarse, size=images.shape[2:], mode="bilinear", align_corners=False)
        return (images + change).clamp(0, 1)


class MatchedGenerator:
    """Images of another generator, aligned to the task and with their moments matched."""

    def __init__(
        self, generator: Generator, images: ImageSet, *, seed: int = 0, provenance: Provenance | None = None
    ) -> None:
        """Fit the match on `images` and on 2048 generated ones, whose labels are drawn from those of `images`.

        Not guaranteed: that no attack tells real from generated images; only linear measurements are matched, and of
        images larger than 28 x 28 only their coarse part. That nothing of `images` shows: mean and covariance do, of
        fewer than 500 images with a shrinkage that grows as they get fewer.

        Args:
            generator: makes the images.
            images: whose moments are taken over; one class per image.
            seed: of the generated images on which it is fitted.
            provenance: of `images`; None says that they are private.

        Raises:
            GenerationError: there are fewer than 32 images, they have several labels each, or `generator` cannot make
                images of their classes.
        """
        if images.labels.ndim != 1 or len(images) < _LEAST_IMAGES:
            raise GenerationError(
                f"Expected at least {_LEAST_IMAGES} images with one label each to match moments, found labels "
                f"{images.labels.shape}."
            )
        self._generator = generator
        _, channels, height, width = images.images.shape
        self._size = (channels, height, width)
        # The covariance of few images is these images: the fewer they are, the less of it is taken over.
        shrinkage = SHRINKAGE * max(1.0, _ENOUGH / len(images))
        self._match = MomentMatch.fit(_coarsen(images), self._draw_sample(images, seed), shrinkage=shrinkage)
        used = provenance or Provenance(source=Source.PRIVATE_ADAPTED, uses=(_USE,))
        inner = generator.identity
        self._identity = GeneratorIdentity(
            kind=inner.kind,
            name=inner.name,
            # Of what the match is computed from: its last bits depend on the machine, and builds go on elsewhere.
            digest=hashlib.sha256(json.dumps([_FORMAT, inner.digest, images.digest, seed]).encode()).hexdigest(),
            settings={**inner.settings, MATCHED: True},
            provenance=combine([inner.provenance, used]),
        )

    @property
    def identity(self) -> GeneratorIdentity:
        """Which generator this is: the inner one's kind and name, with a digest of both."""
        return self._identity

    def generate(self, labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Return `n` images of each of `labels`, of the task's size: float32 in [0, 1], shape (L * n, C, H, W).

        Args:
            labels: int64 class indices, shape (L,).
            n: images per entry, at least 1.
            generator: CPU generator.

        Raises:
            GenerationError: a class is unknown.
        """
        return self._match.apply(self._align(self._generator.generate(labels, n, generator)))

    def _draw_sample(self, images: ImageSet, seed: int) -> Tensor:
        random = torch.Generator().manual_seed(seed)
        labels = torch.from_numpy(images.labels[torch.randint(len(images), (SAMPLE,), generator=random).numpy()])
        drawn = [self._generator.generate(part, 1, random) for part in labels.split(_AT_ONCE)]
        return torch.cat([_on_grid(self._align(part)) for part in drawn])

    def _align(self, images: Tensor) -> Tensor:
        channels, height, width = self._size
        return to_unit_interval(align(images, channels=channels, height=height, width=width))


def _coarsen(images: ImageSet) -> Tensor:
    """Return `images` on the grid, a few at a time: large ones would fill memory as float32."""
    starts = range(0, len(images), _AT_ONCE)
    parts = [torch.from_numpy(images.images[start : start + _AT_ONCE].copy()) for start in starts]
    return torch.cat([_on_grid(to_unit_interval(part)) for part in parts])


def _on_grid(images: Tensor) -> Tensor:
    """Return the images on a grid of at most 28 x 28 pixels, by averaging."""
    height, width = images.shape[2:]
    size = min(height, _LARGEST_SIDE), min(width, _LARGEST_SIDE)
    return images if size == (height, width) else functional.adaptive_avg_pool2d(images, size)


def _root(rows: Tensor, ridge: float, power: float) -> Tensor:
    """Return (S + ridge I)^power for the covariance S of `rows`, float64, shape (N, D)."""
    values, vectors = torch.linalg.eigh(torch.cov(rows.T))
    root: Tensor = (vectors * (values.clamp(min=0) + ridge) ** power) @ vectors.T
    return root
