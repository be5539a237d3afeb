"""All checks of a received model, and the refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from client_app.model_guard.bias_ladder import find_bias_ladder
from client_app.model_guard.collinear_rows import find_collinear_rows
from client_app.model_guard.common_direction import find_common_direction
from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer, has_hidden_layers, read_hidden_layers
from client_app.model_guard.plain_kernels import find_plain_kernels
from client_app.model_guard.probes import draw_probes
from client_app.model_guard.repeated_columns import find_repeated_columns
from client_app.model_guard.scales import find_large_biases, find_large_weights
from client_app.model_guard.shared_measurement import find_shared_measurement
from client_app.model_guard.trap_rows import find_trap_rows
from federation.datasets.image_set import DatasetInfo
from federation.errors import SiteError, SiteErrorCode

_KERNEL_DIMENSIONS = 4

_CHECKS: tuple[Callable[[HiddenLayer], Finding | None], ...] = (
    find_collinear_rows,
    find_common_direction,
    find_shared_measurement,
    find_bias_ladder,
    find_repeated_columns,
    find_trap_rows,
    find_large_biases,
)


def inspect_model(model: nn.Module, info: DatasetInfo) -> tuple[Finding, ...]:
    """Return every reason to take `model` for one that was crafted to read images; none for one that was trained.

    The same parameters give the same findings, on every machine but for rounding, and no private image has a part in
    them: a refusal tells the server nothing that it did not send.

    Args:
        model: as it was received, on the CPU, with finite parameters; it stays as it is.
        info: shape of the images, for those that the model is tried on.
    """
    return tuple(finding for finding in _run_checks(model, info) if finding is not None)


def require_plausible(model: nn.Module, info: DatasetInfo) -> None:
    """Check that nothing about `model` looks crafted.

    Raises:
        SiteError: something does; the findings stand in its text, which never leaves the hospital.
    """
    if findings := inspect_model(model, info):
        lines = "\n".join(map(str, findings))
        raise SiteError(SiteErrorCode.MODEL_CRAFTED, f"The received model looks crafted to read images:\n{lines}")


def _run_checks(model: nn.Module, info: DatasetInfo) -> Iterator[Finding | None]:
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() >= 2:
                yield find_large_weights(name, value)
            if value.dim() == _KERNEL_DIMENSIONS:
                yield find_plain_kernels(name, value)
        if not has_hidden_layers(model):
            return
        for layer in read_hidden_layers(model, draw_probes(info)):
            for check in _CHECKS:
                yield check(layer)
