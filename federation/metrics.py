"""Quality of predictions: accuracy, macro AUROC and cross-entropy, computed the same way by every party."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.preprocessing import to_unit_interval

_EVALUATION_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Quality on one set of images.

    Attributes:
        accuracy: share of correct predictions in [0, 1]; for several labels, the mean over labels at threshold 0.5.
        auroc: macro one-against-rest AUROC in [0, 1]; None where no class has both positives and negatives.
        loss: mean cross-entropy (binary cross-entropy for several labels) in nats; None where it was not told.
        examples: images it was measured on.
    """

    accuracy: float
    auroc: float | None
    loss: float | None
    examples: int


def evaluate(model: nn.Module, images: ImageSet, info: DatasetInfo, device: torch.device) -> Scores:
    """Return the quality of `model`, already on `device`, on `images`; at least one image is needed."""
    logits = predict(model, images, device)
    labels = torch.from_numpy(np.array(images.labels))
    loss = float(criterion(info.task)(logits, targets(labels, info.task)))
    if info.task is Task.MULTILABEL:
        accuracy = float(((logits > 0) == labels.bool()).double().mean())
        positives = images.labels.astype(bool)
    else:
        accuracy = float((logits.argmax(dim=1) == labels).double().mean())
        positives = np.eye(info.classes, dtype=bool)[images.labels]
    scores = logits.double() if info.task is Task.MULTILABEL else logits.double().softmax(dim=1)
    return Scores(accuracy=accuracy, auroc=macro_auroc(scores.numpy(), positives), loss=loss, examples=len(images))


def predict(model: nn.Module, images: ImageSet, device: torch.device) -> Tensor:
    """Return the logits of `model` on `images`: float32 on the CPU, shape (N, classes)."""
    was_training = model.training
    model.eval()
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), _EVALUATION_BATCH):
            batch = torch.from_numpy(np.array(images.images[start : start + _EVALUATION_BATCH]))
            parts.append(model(to_unit_interval(batch.to(device))).float().cpu())
    model.train(was_training)
    return torch.cat(parts)


def criterion(task: Task) -> nn.Module:
    """Return the loss that is minimized for `task`, averaged over the batch."""
    return nn.BCEWithLogitsLoss() if task is Task.MULTILABEL else nn.CrossEntropyLoss()


def losses_of(logits: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Return the training loss of each image in nats, shape (N,), without a mean over images."""
    losses: Tensor = type(criterion(task))(reduction="none")(logits, labels)
    return losses.mean(dim=1) if losses.ndim == 2 else losses


def targets(labels: Tensor, task: Task) -> Tensor:
    """Return int64 `labels` in the dtype that the loss of `task` expects."""
    return labels.float() if task is Task.MULTILABEL else labels


def macro_auroc(scores: NDArray[np.floating], positives: NDArray[np.bool_]) -> float | None:
    """Return the mean one-against-rest AUROC over the classes that have positives and negatives, or None.

    Args:
        scores: shape (N, K), higher means more likely.
        positives: shape (N, K), whether image n has class k.
    """
    areas = [auroc(scores[:, k], positives[:, k]) for k in range(scores.shape[1])]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else None


def auroc(scores: NDArray[np.floating], positives: NDArray[np.bool_]) -> float | None:
    """Return the probability that a positive scores above a negative, ties counted half (Mann-Whitney U), or None.

    Args:
        scores: shape (N,).
        positives: shape (N,).
    """
    count = int(positives.sum())
    if count in (0, len(positives)):
        return None
    _, inverse, repeats = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(repeats) - (repeats - 1) / 2
    rank_sum = float(mean_rank[inverse][positives].sum())
    return (rank_sum - count * (count + 1) / 2) / (count * (len(positives) - count))
