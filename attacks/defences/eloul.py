"""Mixing gradients: batches of one label, and a loss whose residuals do not tell images apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from attacks.defences.defence import Defence
from federation.datasets.image_set import Task


class Eloul(Defence):
    """Identical labels and the mean squared error (Eloul et al., arXiv 2204.12495).

    Deviation: the error is taken on logits against one-hot labels, and on logits against 0 and 1 for several labels.
    Where no label has enough images, a batch holds all of the most frequent one, and is smaller.
    """

    @property
    def name(self) -> str:
        """After its first author."""
        return "eloul"

    @property
    def source(self) -> str:
        """The paper."""
        return "arXiv 2204.12495"

    def choose(self, labels: NDArray[np.int64], count: int, stream: np.random.Generator) -> NDArray[np.int64]:
        """Return `count` images of one label that has so many, both drawn evenly; rows of several labels must agree."""
        _, kinds, sizes = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
        enough = np.flatnonzero(sizes >= min(count, sizes.max()))
        members = np.flatnonzero(kinds.reshape(-1) == stream.choice(enough))
        chosen: NDArray[np.int64] = stream.permutation(members)[:count].astype(np.int64)
        return chosen

    def errors(self, logits: Tensor, labels: Tensor, task: Task) -> Tensor:
        """Return the mean over classes of the squared difference between logits and one-hot labels, shape (B,)."""
        wanted = labels if task is Task.MULTILABEL else functional.one_hot(labels, logits.shape[1])
        return (logits - wanted.to(logits)).square().mean(dim=1)
