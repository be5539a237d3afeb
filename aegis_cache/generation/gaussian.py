"""One Gaussian of few directions per class: the smallest generator, and one that released moments suffice for.

The model is probabilistic principal component analysis (Tipping and Bishop 1999, Journal of the Royal Statistical
Society B 61(3), 611-622): mean, leading directions, and one variance for everything else.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from aegis_cache.generation.request import expand_request
from aegis_cache.store.manifest import GeneratorIdentity
from aegis_cache.store.provenance import Provenance, Source
from federation import parameters
from federation.datasets.image_set import ImageSet
from federation.durable import write_durably
from federation.errors import GenerationError
from federation.preprocessing import to_unit_interval

GAUSSIAN = "gaussian"
_FORMAT = "aegis-gaussian-1"
_USE = "A mean, principal directions and variances were computed for each class from the hospital's images."


@dataclass(frozen=True, kw_only=True)
class GaussianParameters:
    """The Gaussians of K classes over images of D = C * H * W values, `rank` directions each.

    Attributes:
        means: float32, shape (K, D).
        directions: float32, orthonormal rows, shape (K, rank, D).
        variances: float32 >= 0, along each direction, descending, shape (K, rank).
        remainder: float32 >= 0, variance along every other direction, shape (K,).
    """

    means: Tensor
    directions: Tensor
    variances: Tensor
    remainder: Tensor

    def as_tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        return dict(vars(self))


class GaussianGenerator:
    """Draws images from the Gaussian of their class and clips them to [0, 1]."""

    def __init__(
        self,
        gaussians: GaussianParameters,
        class_names: Sequence[str],
        shape: tuple[int, int, int],
        *,
        provenance: Provenance,
        name: str = GAUSSIAN,
    ) -> None:
        """Draw from `gaussians`.

        Args:
            gaussians: one per class.
            class_names: in the order of the labels.
            shape: of an image, (C, H, W).
            provenance: of the Gaussians.
            name: for people.

        Raises:
            GenerationError: the tensors fit neither one another nor `class_names` and `shape`, or are not finite.
        """
        _check_parameters(gaussians, len(class_names), shape)
        self._gaussians, self._class_names, self._shape = gaussians, tuple(class_names), shape
        self._identity = GeneratorIdentity(
            kind=GAUSSIAN,
            name=name,
            digest=_digest(gaussians, self._class_names, shape),
            settings={"rank": gaussians.variances.shape[1]},
            provenance=provenance,
        )

    @classmethod
    def fit(
        cls,
        images: ImageSet,
        class_names: Sequence[str],
        *,
        rank: int = 16,
        provenance: Provenance | None = None,
        name: str = GAUSSIAN,
    ) -> Self:
        """Return the generator of maximum likelihood (Tipping and Bishop 1999, equations 7 and 8).

        Args:
            images: what may be learned from; one class per image.
            class_names: in the order of the labels.
            rank: directions per class; below the number of values of an image.
            provenance: of `images`; None says that they are private.
            name: for people.

        Raises:
            GenerationError: a class has fewer than `rank` + 2 images, or labels, rank and images do not fit.
        """
        if images.labels.ndim != 1 or len(images) == 0:
            raise GenerationError(f"Expected images with one label each to fit, found labels {images.labels.shape}.")
        shape = (images.images.shape[1], images.images.shape[2], images.images.shape[3])
        _check_rank(rank, shape)
        labels = torch.from_numpy(images.labels.copy())
        _check_counts(labels, class_names, rank)
        pixels = torch.from_numpy(images.images.copy())
        fitted = [_fit_class(to_unit_interval(pixels[labels == label]), rank) for label in range(len(class_names))]
        found = provenance or Provenance(source=Source.PRIVATE_ADAPTED, uses=(_USE,))
        return cls(_stack(fitted), class_names, shape, provenance=found, name=name)

    @classmethod
    def from_moments(
        cls,
        means: Tensor,
        second_moments: Tensor,
        class_names: Sequence[str],
        shape: tuple[int, int, int],
        *,
        rank: int = 16,
        provenance: Provenance,
        name: str = GAUSSIAN,
    ) -> Self:
        """Return the generator of moments that were computed, or released with differential privacy, elsewhere.

        Deviation: moments that carry noise may belong to no Gaussian. They are made symmetric, the remainder is the
        mean of the other eigenvalues, negative ones included, so that noise cancels out, but at least 0, and no
        direction varies less than the remainder does.

        Args:
            means: of every class, pixels in [0, 1], shape (K, D) with D = C * H * W.
            second_moments: mean of the outer products x x^T of every class, not centered, shape (K, D, D).
            class_names: in the order of the labels.
            shape: of an image, (C, H, W).
            rank: directions per class, below D.
            provenance: of the moments.
            name: for people.

        Raises:
            GenerationError: the shapes or the rank do not fit, or a value is not finite.
        """
        _check_rank(rank, shape)
        classes, values = len(class_names), math.prod(shape)
        if means.shape != (classes, values) or second_moments.shape != (classes, values, values):
            raise GenerationError(
                f"Expected means of shape {(classes, values)} and second moments of shape {(classes, values, values)}, "
                f"found {tuple(means.shape)} and {tuple(second_moments.shape)}."
            )
        if not (means.isfinite().all() and second_moments.isfinite().all()):
            raise GenerationError("Expected finite moments, found infinities or NaN: check how they were released.")
        pairs = zip(means.double(), second_moments.double(), strict=True)
        fitted = [_from_covariance(mean, moment - torch.outer(mean, mean), rank) for mean, moment in pairs]
        return cls(_stack(fitted), class_names, shape, provenance=provenance, name=name)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the generator that `save` wrote to `path`.

        Raises:
            GenerationError: the file is missing, altered or of another kind.
        """
        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads((file.metadata() or {})[_FORMAT])
                gaussians = GaussianParameters(**{key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118
            channels, height, width = facts["shape"]
            provenance = Provenance.model_validate(facts["provenance"])
            names, digest = tuple(facts["class-names"]), facts["digest"]
            loaded = cls(gaussians, names, (channels, height, width), provenance=provenance, name=facts["name"])
        except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
            raise GenerationError(f"Expected Gaussians as they are saved at {path}, found: {error!r}.") from None
        if loaded.identity.digest != digest:
            raise GenerationError(f"Expected Gaussians with digest {digest} at {path}, found {loaded.identity.digest}.")
        return loaded

    def save(self, path: Path) -> None:
        """Write everything to the safetensors file `path`, whose folder must exist.

        Raises:
            OSError: the volume refused.
        """
        facts = {
            "class-names": self._class_names,
            "shape": self._shape,
            "name": self._identity.name,
            "digest": self._identity.digest,
            "provenance": self._identity.provenance.model_dump(mode="json", by_alias=True),
        }
        metadata = {_FORMAT: json.dumps(facts, sort_keys=True)}
        write_durably(path, safetensors.torch.save(self._gaussians.as_tensors(), metadata=metadata), mode=0o600)

    @property
    def identity(self) -> GeneratorIdentity:
        """Which Gaussians these are."""
        return self._identity

    def generate(self, labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Return `n` images of each of `labels`, float32 in [0, 1], shape (L * n, C, H, W).

        Deviation: values that fall outside [0, 1] are clipped, which makes the extremes likelier than the Gaussian has
        them.

        Raises:
            GenerationError: a label names no class.
        """
        wanted = expand_request(labels, n, self._class_names)
        of = self._gaussians
        along = torch.randn((len(wanted), of.variances.shape[1]), generator=generator)
        images = torch.randn((len(wanted), of.means.shape[1]), generator=generator)
        images *= of.remainder[wanted].sqrt()[:, None]
        along *= (of.variances - of.remainder[:, None]).clamp(min=0).sqrt()[wanted]
        for label in wanted.unique():
            images[wanted == label] += along[wanted == label] @ of.directions[label] + of.means[label]
        return images.clamp_(0, 1).reshape(-1, *self._shape)


def _fit_class(images: Tensor, rank: int) -> GaussianParameters:
    """Return the Gaussian of float32 `images`, shape (N, C, H, W), by the smaller of the two products X X^T, X^T X."""
    values = images.flatten(1).double()
    mean = values.mean(dim=0)
    values -= mean
    count, width = values.shape
    if width <= count:
        return _from_covariance(mean, values.T @ values / count, rank)
    found, vectors = torch.linalg.eigh(values @ values.T / count)
    directions = torch.linalg.qr(values.T @ vectors[:, -rank:].flip(1)).Q.T
    return _assemble(mean, directions, found[-rank:].flip(0), trace=found.sum())


def _from_covariance(mean: Tensor, covariance: Tensor, rank: int) -> GaussianParameters:
    found, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    return _assemble(mean, vectors[:, -rank:].flip(1).T, found[-rank:].flip(0), trace=found.sum())


def _assemble(mean: Tensor, directions: Tensor, top: Tensor, *, trace: Tensor) -> GaussianParameters:
    remainder = ((trace - top.sum()) / (len(mean) - len(top))).clamp(min=0)
    return GaussianParameters(
        means=mean.float(),
        directions=directions.float().contiguous(),
        variances=top.clamp(min=float(remainder)).float(),
        remainder=remainder.float(),
    )


def _stack(parts: Sequence[GaussianParameters]) -> GaussianParameters:
    names = parts[0].as_tensors()
    return GaussianParameters(**{name: torch.stack([part.as_tensors()[name] for part in parts]) for name in names})


def _digest(gaussians: GaussianParameters, class_names: tuple[str, ...], shape: tuple[int, int, int]) -> str:
    terms = [_FORMAT, parameters.digest(gaussians.as_tensors()), class_names, shape]
    return hashlib.sha256(json.dumps(terms).encode()).hexdigest()


def _check_parameters(gaussians: GaussianParameters, classes: int, shape: tuple[int, int, int]) -> None:
    values, rank = math.prod(shape), gaussians.variances.shape[-1]
    shapes = ((classes, values), (classes, rank, values), (classes, rank), (classes,))
    for (name, tensor), like in zip(gaussians.as_tensors().items(), shapes, strict=True):
        if tensor.shape != like or tensor.dtype != torch.float32 or not tensor.isfinite().all():
            found = f"{tensor.dtype} of {tuple(tensor.shape)}"
            raise GenerationError(f"Expected {name} finite, float32 and of shape {like}, found {found}.")
    if (gaussians.variances < 0).any() or (gaussians.remainder < 0).any():
        raise GenerationError("Expected variances >= 0, found negative ones.")


def _check_rank(rank: int, shape: tuple[int, int, int]) -> None:
    if not 1 <= rank < math.prod(shape):
        raise GenerationError(f"Expected rank={rank} >= 1 and below the {math.prod(shape)} values of an image.")


def _check_counts(labels: Tensor, class_names: Sequence[str], rank: int) -> None:
    if not 0 <= int(labels.min()) <= int(labels.max()) < len(class_names):
        raise GenerationError(
            f"Expected labels from 0 to {len(class_names) - 1}, the classes {list(class_names)}, found "
            f"{int(labels.min())} to {int(labels.max())}."
        )
    counts = torch.bincount(labels, minlength=len(class_names)).tolist()
    few = {name: count for name, count in zip(class_names, counts, strict=True) if count < rank + 2}
    if few:
        raise GenerationError(
            f"Expected at least {rank + 2} images of every class for rank={rank}, found {few}: lower the rank, or "
            "leave these classes to another generator."
        )
