"""Whether a server can tell the synthetic images among its candidates from the real ones.

Under masking most of what a server reads are synthetic images. If it can tell them apart, they waste its time and no
more: what hides a real image is the synthetic one in its bin, not the many elsewhere.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from attacks.linear_leakage.bins import find_fisher_direction
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import DataError
from federation.models import build_model
from federation.randomness import derive_seed

_EPOCHS, _BATCH, _RATE = 6, 64, 1e-3


def measure_detectability(
    known: tuple[NDArray[np.float32], NDArray[np.float32]],
    asked: tuple[NDArray[np.float32], NDArray[np.float32]],
    *,
    seed: int,
) -> float:
    """Return the area under the ROC curve of a network that tells real from synthetic images; 0.5 is guessing.

    Args:
        known: real and synthetic images that the server has, float32 in [0, 1], shapes (A, C, H, W) and (G, C, H, W);
            of the larger set as many are taken as there are of the smaller.
        asked: real and synthetic images that it never saw.
        seed: of the network and the order of images.

    Raises:
        DataError: one of the four is empty.
    """
    if min(len(images) for images in (*known, *asked)) < 1:
        raise DataError("Expected real and synthetic images to learn from and to be asked about, found none of a kind.")
    stream = torch.Generator().manual_seed(derive_seed(seed, "detector"))
    count = min(len(known[0]), len(known[1]))
    images = torch.from_numpy(np.concatenate([known[0][:count], known[1][:count]]))
    labels = torch.arange(2).repeat_interleave(count)
    _, channels, height, width = images.shape
    names = ("real", "synthetic")
    info = DatasetInfo(
        name="detector", task=Task.MULTICLASS, class_names=names, channels=channels, height=height, width=width
    )
    network = build_model(ModelConfig(name="cnn"), info, seed=seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
    for _ in range(_EPOCHS):
        for chosen in torch.randperm(len(images), generator=stream).split(_BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()
            optimizer.step()
    return area_under_curve(*(_score(network, part) for part in asked))


def measure_linear_detectability(
    known: tuple[NDArray[np.float32], NDArray[np.float32]], asked: tuple[NDArray[np.float32], NDArray[np.float32]]
) -> float:
    """Return the area under the ROC curve of the direction that tells `known` apart best; see `measure_detectability`.

    Args:
        known: real and synthetic images that the server has, at least two of each.
        asked: real and synthetic images that it never saw.
    """
    real, synthetic = (part.reshape(len(part), -1).astype(np.float64) for part in known)
    direction = find_fisher_direction(synthetic, real)
    scores = [part.reshape(len(part), -1).astype(np.float64) @ direction for part in asked]
    return area_under_curve(scores[0], scores[1])


def area_under_curve(negatives: NDArray[np.float64], positives: NDArray[np.float64]) -> float:
    """Return the probability that a positive scores above a negative, ties counting half (Mann and Whitney, 1947).

    Args:
        negatives: scores, at least one.
        positives: scores, at least one.
    """
    ranks = rankdata(np.concatenate([negatives, positives]))[len(negatives) :]
    wins = ranks.sum() - len(positives) * (len(positives) + 1) / 2
    return float(wins / (len(negatives) * len(positives)))


def _score(network: torch.nn.Module, images: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return how much more each image looks synthetic than real."""
    with torch.no_grad():
        logits = torch.cat([_difference(network(part)) for part in torch.from_numpy(images).split(256)])
    scores: NDArray[np.float64] = logits.double().numpy()
    return scores


def _difference(logits: Tensor) -> Tensor:
    return logits[:, 1] - logits[:, 0]
