"""Units that respond alike to images and differ by their thresholds: an imprint that noise on its rows hides."""

from __future__ import annotations

import torch
from torch import Tensor

from client_app.model_guard.collinear_rows import pairwise_cosines
from client_app.model_guard.finding import Finding
from client_app.model_guard.layers import HiddenLayer

_ALIKE = 0.98
_RELATED = 0.4
_LEAST_GROUP = 12
_GROUP_SHARE = 0.05
_GROUPS = 3
_SELDOM, _NEARLY_ALWAYS = 0.02, 0.98
_SPREAD = 1.0
_QUANTILES = (0.1, 0.9)


def find_shared_measurement(layer: HiddenLayer) -> Finding | None:
    """Return a finding where many units follow one measurement of the probes and switch on one after the other.

    Every image then activates a prefix of these units: their active sets are nested, which is how a server isolates an
    image between two thresholds (arXiv 2110.13057, section 3). White noise on the rows, as long as it leaves them
    related, hides the common direction from `find_collinear_rows` and hardly from smooth images. Units of trained
    models may respond alike, too, but switch all at once, or no image switches them any more.

    Args:
        layer: with its inputs for the probes.
    """
    outputs = layer.inputs @ layer.weight.T + layer.bias
    units = len(layer.bias)
    limit = max(_LEAST_GROUP, round(_GROUP_SHARE * units))
    related = pairwise_cosines(layer.weight).abs_() > _RELATED
    for thresholds in _thresholds_by_group(outputs, related, limit):
        low, high = torch.quantile(thresholds, torch.tensor(_QUANTILES)).tolist()
        if high - low > _SPREAD:
            return Finding(
                check="shared-measurement",
                tensor=f"{layer.name}.weight",
                found=f"{len(thresholds)} of {units} units of one measurement, thresholds {high - low:.2f} deviations "
                "wide",
                expected=f"fewer than {limit}, or thresholds at most {_SPREAD:g} deviations wide",
            )
    return None


def _thresholds_by_group(outputs: Tensor, related: Tensor, limit: int) -> list[Tensor]:
    """Return for up to three groups of units alike where on the common measurement, in deviations, each switches.

    Units that hardly any probe switches, or hardly any does not, are left out.
    """
    rates = (outputs > 0).float().mean(dim=0)
    switching = (rates > _SELDOM) & (rates < _NEARLY_ALWAYS)
    centred = outputs - outputs.mean(dim=0)
    deviations = centred.square().mean(dim=0).sqrt()
    unit = torch.where(deviations > 0, centred / deviations, torch.zeros(()))
    alike = (((unit.T @ unit) / len(outputs)).abs() > _ALIKE) & related & switching & switching[:, None]
    groups = []
    for _ in range(_GROUPS):
        centre = int(alike.sum(dim=1).argmax())
        members = alike[centre].clone()
        if int(members.sum()) + 1 < limit:
            break
        members[centre] = True
        slopes = (centred[:, members] * unit[:, centre, None]).mean(dim=0)
        groups.append(-outputs[:, members].mean(dim=0) / slopes)
        alike[members] = False
        alike[:, members] = False
    return groups
