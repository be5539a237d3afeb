"""Units along one direction, however blurred, that switch one after the other: an imprint that noise hides."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from client_app.model_guard.collinear_rows import pairwise_cosines
from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer

_NEAR = 0.8
_LEAST_GROUP = 12
_GROUP_SHARE = 0.05
_LEAST_INPUTS = 16
_SPREAD = 0.4
_QUANTILES = (0.1, 0.9)


def find_common_direction(layer: HiddenLayer) -> Finding | None:
    """Return a finding where many rows point the same way and switch at different values of what that way measures.

    White noise on the rows of an imprint, up to half of their length, hides from `find_collinear_rows` that they are
    one direction, and where that direction is no smooth one, from `find_shared_measurement` what it measures. The mean
    of the rows shows both again, since noise averages out. Training, too, makes rows collinear (Adam, at a tenfold
    learning rate), but puts all their thresholds at one value, or where no image comes.

    Args:
        layer: with its inputs for the probes; of less than 16 inputs nothing is said.
    """
    units, inputs = layer.weight.shape
    if inputs < _LEAST_INPUTS:
        return None
    limit = max(_LEAST_GROUP, round(_GROUP_SHARE * units))
    near = pairwise_cosines(layer.weight).abs_() > _NEAR
    centre = int(near.sum(dim=1).argmax())
    members = near[centre]
    members[centre] = True
    thresholds = _thresholds(layer, members, centre)
    if len(thresholds) < limit:
        return None
    low, high = torch.quantile(thresholds, torch.tensor(_QUANTILES)).tolist()
    if high - low <= _SPREAD:
        return None
    return Finding(
        check="common-direction",
        tensor=f"{layer.name}.weight",
        found=f"{len(thresholds)} of {units} units along one direction, thresholds {high - low:.2f} deviations wide",
        expected=f"fewer than {limit}, or thresholds at most {_SPREAD:g} deviations wide",
    )


def _thresholds(layer: HiddenLayer, members: Tensor, centre: int) -> Tensor:
    """Return where on the mean of their directions, in deviations of the probes, the members switch that do."""
    rows, bias = layer.weight[members], layer.bias[members]
    signs = torch.sign(rows @ layer.weight[centre])
    direction = functional.normalize((functional.normalize(rows, dim=1) * signs[:, None]).mean(dim=0), dim=0)
    measured = layer.inputs @ direction
    slopes = rows @ direction
    thresholds = -bias / slopes
    deviation = measured.std()
    if not deviation > 0:
        return thresholds[:0]
    inside = (thresholds > measured.min()) & (thresholds < measured.max())
    return (thresholds[inside] - measured.mean()) / deviation
