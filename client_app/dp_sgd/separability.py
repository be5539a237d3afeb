"""Whether a network's gradients can be told apart image by image; without that, clipping bounds nothing."""

from __future__ import annotations

import torch
from opacus.validators import ModuleValidator
from torch import Tensor, nn

from client_app.dp_sgd.batches import Batch
from client_app.dp_sgd.clipping import Losses
from client_app.dp_sgd.gradient_hooks import hooks_on
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import SiteError, SiteErrorCode
from federation.metrics import losses_of

_BATCH_STATISTICS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_PROBES = 3
_TOLERANCE = 0.01
_NEGLIGIBLE = 1e-3


def require_separable(model: nn.Module, info: DatasetInfo, *, mode: str, device: torch.device) -> None:
    """Check that every image's gradient can be had on its own; `model` is put into training mode.

    It is tried on images of noise: no private image is looked at.

    Args:
        model: on `device`.
        info: shape of the images, and number and kind of labels.
        mode: "hooks" or "ghost".
        device: where to compute.

    Raises:
        SiteError: as for `require_separable_losses`.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((_PROBES, info.channels, info.height, info.width), generator=generator).to(device)
    classes = torch.arange(_PROBES, device=device) % info.classes
    labels = classes if info.task is Task.MULTICLASS else torch.eye(info.classes, device=device)[classes]
    require_separable_losses(
        model,
        Batch(images=images.requires_grad_(), labels=labels),
        lambda batch: losses_of(model(batch.images), batch.labels, info.task),
        mode=mode,
    )


def require_separable_losses(model: nn.Module, probe: Batch, losses: Losses, *, mode: str) -> None:
    """Check that the gradient of each of `losses` can be had on its own; `model` is put into training mode.

    First by the kinds of layers; then by trial: the norms that Opacus finds in one batch must be those that autograd
    finds image by image.

    Args:
        model: whose parameters are trained.
        probe: what to try on, without anything private; its images ask for their gradient or not as in training.
        losses: from a batch, `probe` or one image of it, to one loss per image, by nothing but chance-free functions of
            each image and its label.
        mode: "hooks" or "ghost".

    Raises:
        SiteError: a layer mixes images, keeps statistics of them, or defeats Opacus; the message names the remedy.
    """
    model.train()
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SiteError(SiteErrorCode.MODEL_MISMATCH, "Expected at least one trainable parameter, found none.")
    if unfit := [
        f"{name or 'the network'}: {why}" for name, module in model.named_modules() for why in _faults(module)
    ]:
        raise SiteError(SiteErrorCode.MODEL_MISMATCH, f"Expected layers that DP-SGD can train, found {unfit}.")
    if mode == "ghost" and _shares_parameters(model):
        raise SiteError(
            SiteErrorCode.MODEL_MISMATCH,
            "Expected no parameter to stand in two layers under privacy.grad-sample = 'ghost': use 'hooks'.",
        )
    try:
        agree = _agree(*_compare(model, probe, losses, mode))
    except NotImplementedError as error:
        raise SiteError(SiteErrorCode.MODEL_MISMATCH, f"Expected layers that Opacus knows, found: {error}") from error
    if not agree:
        raise SiteError(
            SiteErrorCode.MODEL_MISMATCH,
            "Expected every trainable parameter to take part, and each image's gradient to be the same in a batch as "
            "alone; they differ: remove layers that mix images or act by chance, such as dropout, and freeze "
            "parameters without use.",
        )


def _faults(module: nn.Module) -> list[str]:
    if isinstance(module, _BATCH_STATISTICS):
        return ["batch normalization mixes images: use GroupNorm"]
    if getattr(module, "running_mean", None) is not None:
        return ["running statistics would leave without noise: set track_running_stats=False"]
    if isinstance(module, _CONVOLUTIONS) and module.padding_mode != "zeros":
        return [f"padding_mode={module.padding_mode!r} defeats Opacus: pad in a layer of its own"]
    check = ModuleValidator.VALIDATORS.get(type(module))
    return [] if check is None else [str(error) for error in check(module)]


def _shares_parameters(model: nn.Module) -> bool:
    every = [id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False)]
    return len(every) != len(set(every))


def _compare(model: nn.Module, probe: Batch, losses: Losses, mode: str) -> tuple[Tensor, Tensor]:
    """Return the norms (P, U) of every parameter and image of `probe`: Opacus' and autograd's."""
    with hooks_on(model, mode) as hooks:
        found = hooks.measure_norms(losses(probe), probe.images)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = []
    for image, label in zip(probe.images.detach().split(1), probe.labels.split(1), strict=True):
        loss = losses(Batch(images=image, labels=label)).sum()
        slopes = torch.autograd.grad(loss, trainable, materialize_grads=True)
        expected.append(torch.stack([torch.linalg.vector_norm(slope) for slope in slopes]))
    return torch.stack(found) if found else torch.zeros(0, len(probe.labels)), torch.stack(expected, dim=1)


def _agree(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    slack = _TOLERANCE * expected + _NEGLIGIBLE * torch.linalg.vector_norm(expected, dim=0)
    return bool(((found - expected).abs() <= slack).all())
