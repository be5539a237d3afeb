"""A rehearsal on images of noise: whether a plan can be trained at all, found out without looking at a private image.

An error is an answer, too. Under a privacy mechanism nothing that private images caused may decide whether a hospital
answers with an error, so what can be known beforehand is found out here, and what cannot is not told.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from client_app.training import train_locally
from federation.config import TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.errors import SiteError, SiteErrorCode
from federation.parameters import is_finite, read_parameters

_IMAGES = 16


def rehearse(model: nn.Module, info: DatasetInfo, plan: TrainingConfig, device: torch.device) -> None:
    """Train a copy of `model` by `plan` on images of noise; `model` itself stays as it is.

    Args:
        model: on `device`, as it was received.
        info: shape of the images, and number and kind of labels.
        plan: how to train; its corrections for class frequencies are left out.
        device: where to compute.

    Raises:
        SiteError: the copy ends with NaN or infinite parameters, or cannot be trained.
    """
    public = plan.model_copy(update={"label_skew": "none", "batch_size": _IMAGES})
    trial = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    try:
        train_locally(trial, _images_of_noise(info), info, public, generator=generator, device=device)
    except RuntimeError as error:
        raise SiteError(SiteErrorCode.TRAINING_FAILED, f"Training stopped on images of noise: {error}") from error
    if not is_finite(read_parameters(trial)):
        raise SiteError(
            SiteErrorCode.TRAINING_FAILED,
            "Expected finite parameters after training on images of noise, found NaN or infinity; no private image was "
            "looked at and nothing is released: lower training.learning-rate, or start from a sound model.",
        )


def _images_of_noise(info: DatasetInfo) -> ImageSet:
    stream = np.random.default_rng(0)
    images = stream.integers(0, 256, (_IMAGES, info.channels, info.height, info.width), dtype=np.uint8)
    labels = np.arange(_IMAGES, dtype=np.int64) % info.classes
    if info.task is Task.MULTILABEL:
        labels = np.eye(info.classes, dtype=np.int64)[labels]
    return ImageSet(images=images, labels=labels)
