"""What the server that sent a recorded model could have read out of the recorded update, whatever it had in mind.

Nothing is known here of how the model was made: only its numbers are. Not guaranteed: that nothing else can be read.
These are passive read-outs of layers that see the image; an attacker who knows more of what it planted reads more, and
after several steps of Adam a difference of parameters is no multiple of a gradient any more.
Read next: `passive_reading` for the read-outs, `matching` for whether candidates are images of the hospital.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from attacks.linear_leakage.label_recovery import recover_present_labels, recover_single_label
from attacks.linear_leakage.read_out import Moved
from attacks.records.passive_reading import find_image_layers, read_layer
from attacks.records.reading import RecordedUpdate
from client_app.model_guard.finding import Finding
from client_app.model_guard.inspection import inspect_model
from federation.datasets.image_set import DatasetInfo, Task
from federation.models import build_empty_model
from federation.parameters import Parameters, write_parameters

_SLACK = 0.02
_INSIDE = 0.98
_CONVOLUTION = (
    "Its first layer is a convolution, and no fully connected layer sees the image, so that these read-outs do not "
    "apply. Attacks on such a network, as Scale-MIA, need crafted parameters, which the guard looks for."
)
_NO_BIAS = (
    "Its only layer has no bias and sees normalized inputs, so that these read-outs do not apply: the mean over images "
    "that each class sees is all that its update holds."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Inspection:
    """What was read out of one recorded update.

    Attributes:
        record: the update.
        layers: names of the layers that were read; empty where none sees the image.
        note: why there is none; empty otherwise.
        candidates: float64, shape (K, C, H, W), unclamped: whatever may be an image.
        in_range: how many of them have the pixels of an image, from 0 to 1; a mixture of several images has, too.
        labels: classes that must occur in the training images, from the last layer; None where that says nothing.
        findings: what the model guard holds against the model that was sent.
    """

    record: RecordedUpdate
    layers: tuple[str, ...]
    note: str
    candidates: NDArray[np.float64] = field(repr=False)
    in_range: int
    labels: tuple[int, ...] | None
    findings: tuple[Finding, ...]


def inspect_record(record: RecordedUpdate) -> Inspection:
    """Return what can be read out of `record`.

    Raises:
        DataError: the record is damaged, or of another model than its metadata say.
    """
    info, update = record.metadata.data.info, record.update
    network = build_empty_model(record.metadata.model, info)
    write_parameters(network, record.broadcast)
    layers = find_image_layers(network, info)
    found = [read_layer(layer, _moved(update, layer.name)) for layer in layers]
    shape = (info.channels, info.height, info.width)
    candidates = np.concatenate([np.empty((0, *shape)), *(read.reshape(-1, *shape) for read in found)])
    return Inspection(
        record=record,
        layers=tuple(layer.name for layer in layers),
        note="" if layers else _explain(record.metadata.model.name),
        candidates=candidates,
        in_range=_count_in_range(candidates),
        labels=_read_labels(network, update, info, record.metadata.examples),
        findings=inspect_model(network, info),
    )


def _moved(update: Parameters, name: str) -> Moved:
    """Return the change of a layer, which is downhill: a negative multiple of its gradient reads just as well."""
    return Moved.of(update[f"{name}.weight"], update[f"{name}.bias"])


def _read_labels(network: nn.Module, update: Parameters, info: DatasetInfo, examples: int) -> tuple[int, ...] | None:
    """Return the classes that the change of the last layer's bias gives away.

    Exact for a multiple of a gradient of the cross-entropy; after several steps nearly so.
    """
    last = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)][-1]
    bias = update.get(f"{last}.bias")
    if bias is None or info.task is not Task.MULTICLASS or not bool(bias.any()):
        return None
    if examples == 1:
        return (recover_single_label(-bias),)
    return tuple(int(label) for label in recover_present_labels(-bias))


def _count_in_range(candidates: NDArray[np.float64]) -> int:
    inside = (candidates > -_SLACK) & (candidates < 1 + _SLACK)
    return int((inside.mean(axis=(1, 2, 3)) >= _INSIDE).sum()) if len(candidates) else 0


def _explain(model: str) -> str:
    return _NO_BIAS if model == "linear" else _CONVOLUTION
