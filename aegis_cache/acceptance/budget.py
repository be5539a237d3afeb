"""The acceptance budget H: how far from private images a synthetic one may lie.

Aegis asks that the expected squared distance between private and synthetic data stay within a budget H (arXiv
2609.38339, section 4), and says neither how images are paired, in which features, nor how large H is. Ours: pairs as
`aegis_cache.acceptance.pairing` makes them, in the features of a frozen extractor, and one H per class, calibrated so
that a stated share of real images that the references do not contain would pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from aegis_cache.acceptance.pairing import Pairing, pair
from aegis_cache.features.extractor import FeatureExtractor
from federation.datasets.image_set import ImageSet
from federation.errors import GenerationError
from federation.preprocessing import to_unit_interval

_FEWEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassBudget:
    """The budget of one class.

    Attributes:
        references: features of the private images to pair with, float32, shape (R, F).
        limit: H, the largest squared distance that is accepted.
        held_out: mean squared distance of the real images that H was calibrated on.
    """

    references: Tensor
    limit: float
    held_out: float


class Budget:
    """Accepts or rejects synthetic images class by class.

    Attributes:
        identity: extractor, pairing and pass rate in words.
        limits: H per class.
    """

    def __init__(
        self,
        references: ImageSet,
        held_out: ImageSet,
        class_names: Sequence[str],
        extractor: FeatureExtractor,
        *,
        pairing: Pairing = "nearest",
        pass_rate: float = 0.95,
    ) -> None:
        """Calibrate H of each class on the distances of its held-out images.

        H is the order statistic that a fresh image of the same distribution stays below with a probability of at least
        `pass_rate` (split conformal prediction, arXiv 1905.03222, section 2), or the largest distance where so few
        images cannot promise that. A class with fewer than eight held-out images is calibrated on distances between
        the references: every second one is paired with the others.

        Args:
            references: private images that synthetic ones are compared with; one label each.
            held_out: real images that are not among them.
            class_names: in the order of the labels.
            extractor: frozen.
            pairing: how.
            pass_rate: share of fresh real images that pass, in (0, 1].

        Raises:
            GenerationError: a class has too few images to calibrate on, or `pass_rate` is no share.
        """
        if not 0 < pass_rate <= 1:
            raise GenerationError(f"Expected 0 < pass-rate={pass_rate} <= 1.")
        self._extractor, self._pairing, self._pass_rate = extractor, pairing, pass_rate
        self.identity = f"{extractor.identity}, {pairing} pairs of one class, {pass_rate:g} of fresh real images pass"
        features, others = self.features(references), self.features(held_out)
        self._classes = {
            label: self._calibrate(name, _of_class(features, references, label), _of_class(others, held_out, label))
            for label, name in enumerate(class_names)
            if np.any(references.labels == label)
        }

    @property
    def limits(self) -> dict[int, float]:
        """H per class; classes without private images have none."""
        return {label: budget.limit for label, budget in self._classes.items()}

    @property
    def held_out_means(self) -> dict[int, float]:
        """Mean squared distance of held-out real images per class: what H stands beside."""
        return {label: budget.held_out for label, budget in self._classes.items()}

    def features(self, images: ImageSet) -> Tensor:
        """Return the features of `images`, float32, shape (N, F)."""
        return self._extractor.extract(to_unit_interval(torch.from_numpy(np.array(images.images))))

    def distances(self, candidates: ImageSet) -> Tensor:
        """Return the squared distance of each candidate to its pair, float64, shape (N,); infinite without a budget."""
        found = torch.full((len(candidates),), math.inf, dtype=torch.float64)
        features, labels = self.features(candidates), torch.from_numpy(np.array(candidates.labels))
        for label, budget in self._classes.items():
            chosen = labels == label
            found[chosen] = pair(features[chosen], budget.references, self._pairing)
        return found

    def accept(self, candidates: ImageSet) -> tuple[Tensor, Tensor]:
        """Return which candidates lie within H of their class (bool), and their squared distances; shape (N,) each."""
        distances = self.distances(candidates)
        found = [self.limits.get(int(label), -math.inf) for label in candidates.labels]
        return distances <= torch.tensor(found, dtype=torch.float64), distances

    def _calibrate(self, name: str, references: Tensor, held_out: Tensor) -> ClassBudget:
        if len(held_out) < _FEWEST:
            held_out, references_used = references[::2], references[1::2]
        else:
            references_used = references
        if len(held_out) < _FEWEST or len(references_used) < 1:
            raise GenerationError(
                f"Expected at least {2 * _FEWEST} permitted images of class {name!r} to calibrate the budget on, found "
                f"{len(references)}: use --filter none for a data set this small."
            )
        distances = pair(held_out, references_used, self._pairing).sort().values
        rank = min(len(distances), math.ceil(self._pass_rate * (len(distances) + 1))) - 1
        return ClassBudget(references=references, limit=float(distances[rank]), held_out=float(distances.mean()))


def _of_class(features: Tensor, images: ImageSet, label: int) -> Tensor:
    return features[torch.from_numpy(np.array(images.labels == label))]
