"""Local training: mini-batch descent on the hospital's own images, in place, on the model that was received.

With masking, synthetic images take part; read next: `client_app.masking.training`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from client_app.augmentation import augment
from client_app.masking.preparation import Masking
from client_app.masking.training import RealImages, train_masked
from federation.config import TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.errors import SiteError, SiteErrorCode
from federation.metrics import criterion, losses_of, targets
from federation.preprocessing import to_unit_interval


def train_locally(
    model: nn.Module,
    images: ImageSet,
    info: DatasetInfo,
    plan: TrainingConfig,
    *,
    generator: torch.Generator,
    device: torch.device,
    masking: Masking | None = None,
) -> None:
    """Train `model` in place by `plan`.

    The optimizer starts fresh: its state depends on private images and belongs to one update.

    Args:
        model: already on `device`.
        images: the training split, at least one image.
        info: what the labels are.
        plan: optimizer, epochs and batch size.
        generator: CPU generator for the order of images and their augmentation.
        device: where to compute.
        masking: synthetic images and how they take part; None for none.

    Raises:
        SiteError: the plan corrects class frequencies where images have several labels, or masking refuses the model.
    """
    pixels = torch.from_numpy(np.array(images.images)).to(device)
    labels = targets(torch.from_numpy(np.array(images.labels)), info.task).to(device)
    optimizer = make_optimizer(model.parameters(), plan)
    loss_of = criterion(info.task)
    shift = label_shift(images, info, plan.label_skew).to(device) + prior_shift(info, plan).to(device)
    if masking is not None:
        train_masked(
            model,
            RealImages(pixels=pixels, labels=labels, augmentation=plan.augmentation),
            lambda batch, wanted: losses_of(_logits(model, batch, plan) + shift, wanted, info.task),
            optimizer,
            masking,
            epochs=plan.local_epochs,
            batch_size=plan.batch_size,
            generator=generator,
        )
        return
    model.train()
    for _ in range(plan.local_epochs):
        order = torch.randperm(len(images), generator=generator).to(device)
        for chosen in order.split(plan.batch_size):
            batch = augment(to_unit_interval(pixels[chosen]), plan.augmentation, generator)
            optimizer.zero_grad(set_to_none=True)
            loss_of(_logits(model, batch, plan) + shift, labels[chosen]).backward()
            optimizer.step()


def _logits(model: nn.Module, images: Tensor, plan: TrainingConfig) -> Tensor:
    """Return the logits of `model`, computed in the precision of `plan`."""
    if plan.precision == "full":
        logits: Tensor = model(images)
        return logits
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        rounded: Tensor = model(images)
    return rounded.float()


def label_shift(images: ImageSet, info: DatasetInfo, kind: str) -> Tensor:
    """Return what is added to the logits in training: float32, shape (classes,) or a single zero.

    "logit-adjustment" adds the log of the hospital's class frequencies, one image added to each class (Menon et al.,
    arXiv 2007.07314, equation 10, with the local prior in place of the global one). The network then learns what
    tells classes apart instead of how often they occur here, and predicts as if all were equally frequent.

    Not guaranteed: privacy. The frequencies are private labels' counts; they shape the update and are not noised.

    Raises:
        SiteError: it is asked for where an image has several labels.
    """
    if kind == "none":
        return torch.zeros(1)
    _require_one_label(info, kind)
    counts = torch.bincount(torch.from_numpy(np.array(images.labels)), minlength=info.classes) + 1
    return (counts / counts.sum()).log()


def prior_shift(info: DatasetInfo, plan: TrainingConfig) -> Tensor:
    """Return the logs of the plan's public class frequencies: float32, shape (classes,), or a single zero.

    Logit adjustment (Menon et al., arXiv 2007.07314, equation 10) by numbers that everybody knows: no image enters.

    Raises:
        SiteError: there are not as many frequencies as classes, or an image has several labels.
    """
    prior = plan.public_prior
    if not prior:
        return torch.zeros(1)
    if len(prior) != info.classes or info.task is Task.MULTILABEL:
        raise SiteError(
            SiteErrorCode.PLAN_REFUSED,
            f"Expected training.class-prior of {info.classes} classes with one label per image, found {len(prior)}.",
        )
    return torch.tensor(prior, dtype=torch.float32).log()


def require_plan(info: DatasetInfo, plan: TrainingConfig) -> None:
    """Check, without any image, that what `plan` changes of images and corrects of class frequencies fits the data.

    Raises:
        SiteError: rows of a table would be moved, images have several labels, or the plan names the frequencies of
            other classes.
    """
    if info.height == 1 and plan.augmentation != "none":
        raise SiteError(
            SiteErrorCode.PLAN_REFUSED,
            f"Expected training.augmentation='none' for rows of a table, found {plan.augmentation!r}: moved by a "
            "column, a row means something else.",
        )
    _require_one_label(info, plan.label_skew)
    prior_shift(info, plan)


def _require_one_label(info: DatasetInfo, kind: str) -> None:
    if kind != "none" and info.task is Task.MULTILABEL:
        raise SiteError(SiteErrorCode.PLAN_REFUSED, f"Expected one label per image for training.label-skew={kind!r}.")


def make_optimizer(parameters: Iterable[Tensor], plan: TrainingConfig) -> torch.optim.Optimizer:
    """Return the local optimizer that `plan` names."""
    rate, decay = plan.learning_rate, plan.weight_decay
    if plan.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=plan.momentum, weight_decay=decay)
    kind = torch.optim.Adam if plan.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, lr=rate, weight_decay=decay)
