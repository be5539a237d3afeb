"""Every way to read images out of the update of one layer when nothing is known of how its parameters were made.

Row by row, as they come, and after sorting: rows that measure the same thing are put in the order of their thresholds,
and neighbours are subtracted. Read next: `inspecting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.linear_leakage.read_out import Moved
from attacks.linear_leakage.rows import read_rows
from federation.datasets.image_set import DatasetInfo

Values = NDArray[np.float64]

_MOST_ROWS = 4096
_MOST_DIRECTIONS = 256
_ALIKE = 0.99
_ROUNDING = 4 * float(np.finfo(np.float32).eps)
_HEARD = 0.5
_TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ImageLayer:
    """A fully connected layer with a bias that sees the image itself.

    Attributes:
        name: of the layer.
        weight: float64, shape (k, n), n = C * H * W, as it was sent.
        bias: float64, shape (k,).
        columns: float64, shape (m, k): what the next fully connected layer makes of each unit; None where none follows.
    """

    name: str
    weight: Values
    bias: Values
    columns: Values | None


def find_image_layers(network: nn.Module, info: DatasetInfo) -> list[ImageLayer]:
    """Return the fully connected layers of `network` whose input is the image, pixel by pixel.

    Args:
        network: on the CPU, with the parameters that were sent; it stays as it is.
        info: shape of the images.
    """
    draw = torch.Generator().manual_seed(0)
    probe = torch.rand(1, info.channels, info.height, info.width, generator=draw)
    linear = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    caught: dict[str, Tensor] = {}
    handles = [
        layer.register_forward_pre_hook(lambda _, given, name=name: caught.update({name: given[0].flatten(1)}))
        for name, layer in linear
    ]
    training = network.training
    with torch.no_grad():
        network.eval()(probe)
    network.train(training)
    for handle in handles:
        handle.remove()
    following: list[nn.Linear | None] = [*(layer for _, layer in linear[1:]), None]
    flat = probe.flatten(1)
    return [
        _take_apart(name, layer, behind)
        for (name, layer), behind in zip(linear, following, strict=True)
        if "bias" in dict(layer.named_parameters()) and name in caught and torch.equal(caught[name], flat)
    ]


def read_layer(layer: ImageLayer, moved: Moved) -> Values:
    """Return everything that may be an image: float64, shape (K, n), unclamped, all finite.

    Args:
        layer: as it was sent.
        moved: a multiple of its gradient, or what several steps made of it.
    """
    found = np.concatenate([_read_rows(moved), read_neighbours(layer, moved)])
    finite: Values = found[np.isfinite(found).all(axis=1)]
    return finite


def read_neighbours(layer: ImageLayer, moved: Moved) -> Values:
    """Return one candidate for every unit and its neighbour: float64, shape (K, n), NaN where nothing was heard.

    Units whose rows point the same way are sorted by their threshold -b / |w|; then the difference of two neighbours
    sums over the images between their thresholds (Fowl et al., arXiv 2110.13057, equation 4). All units that have no
    like are sorted among themselves.

    Deviation: the scale of a candidate comes from the bias, or from where its bin lies, whichever rounding spoils less.
    At most 256 directions are looked for.

    Args:
        layer: as it was sent.
        moved: see `read_layer`.
    """
    found = [_read_group(layer, moved, group, alike=alike) for group, alike in _group_rows(layer.weight)]
    return np.concatenate([np.empty((0, layer.weight.shape[1])), *found])


def _take_apart(name: str, layer: nn.Linear, behind: nn.Linear | None) -> ImageLayer:
    columns = None
    if behind is not None and behind.in_features == layer.out_features:
        columns = _as_array(behind.weight)
    return ImageLayer(
        name=name,
        weight=_as_array(layer.weight),
        bias=_as_array(layer.bias),
        columns=columns,
    )


def _read_rows(moved: Moved) -> Values:
    """Return a candidate a row, of those that moved most: all pairs of rows are compared."""
    chosen = np.sort(np.argsort(-np.abs(moved.bias), kind="stable")[:_MOST_ROWS])
    return read_rows(Moved(weight=moved.weight[chosen], bias=moved.bias[chosen]))


def _group_rows(weight: Values) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """Yield units whose rows point the same way, and last all that have no like; whether it is the former."""
    lengths = np.linalg.norm(weight, axis=1)
    left, alone = lengths > 0, np.zeros(len(weight), dtype=bool)
    units = weight / np.maximum(lengths, _TINY)[:, None]
    for _ in range(_MOST_DIRECTIONS):
        if not left.any():
            break
        leader = int(left.argmax())
        alike = left & (units @ units[leader] > _ALIKE)
        left &= ~alike
        if int(alike.sum()) > 1:
            yield np.flatnonzero(alike), True
        else:
            alone |= alike
    if (rest := np.flatnonzero(alone | left)).size > 1:
        yield rest, False


def _read_group(layer: ImageLayer, moved: Moved, group: NDArray[np.int64], *, alike: bool) -> Values:
    lengths = np.linalg.norm(layer.weight[group], axis=1)
    thresholds = -layer.bias[group] / lengths
    order = np.argsort(thresholds, kind="stable")
    group, thresholds, lengths = group[order], thresholds[order], lengths[order]
    strengths = _strengths(layer.columns, group)
    weight, bias = moved.weight[group] / strengths[:, None], moved.bias[group] / strengths
    differences = _neighbours(weight)
    by_bias, spoiled = _neighbours(bias), _spoil(bias, layer.bias[group] / strengths)
    errors = spoiled / np.maximum(np.abs(by_bias), _TINY)
    divisors = by_bias
    if alike:
        direction = (layer.weight[group] / lengths[:, None]).mean(axis=0)
        direction /= np.linalg.norm(direction)
        measured, rounded = weight @ direction, lengths / strengths / np.sqrt(weight.shape[1])
        projected, ends = _neighbours(measured), np.append(thresholds[1:], thresholds[-1])
        middles, halves = (thresholds + ends) / 2, np.append(np.diff(thresholds), np.ptp(thresholds)) / 2
        other = _spoil(measured, rounded) / np.maximum(np.abs(projected), _TINY)
        other += halves / np.maximum(np.abs(middles), _TINY)
        divisors = np.where(other < errors, projected / np.where(middles == 0, _TINY, middles), by_bias)
        errors = np.minimum(errors, other)
    found = np.full(differences.shape, np.nan)
    heard = (errors < _HEARD) & (divisors != 0)
    found[heard] = differences[heard] / divisors[heard, None]
    return found


def _strengths(columns: Values | None, group: NDArray[np.int64]) -> Values:
    """Return what each unit's gradient is multiplied by, where the next layer makes the same of all units but for it.

    Elsewhere 1: neighbours then do not cancel, and nobody can make them.
    """
    if columns is None:
        return np.ones(len(group))
    chosen = columns[:, group]
    lengths = np.linalg.norm(chosen, axis=0)
    common = chosen[:, int(lengths.argmax())] / max(float(lengths.max()), _TINY)
    shares = common @ chosen
    same = bool((np.abs(shares) > _ALIKE * lengths).all() and (lengths > 0).all())
    scaled: Values = shares / np.abs(shares).max() if same else np.ones(len(group))
    return scaled


def _neighbours(values: Values) -> Values:
    """Return each entry less the next one; the last as it is."""
    differences = values.copy()
    differences[:-1] -= values[1:]
    return differences


def _spoil(values: Values, parameters: Values) -> Values:
    """Return by how much rounding may change the difference of each entry and the next one."""
    single = _ROUNDING * (np.abs(values) + np.abs(parameters))
    both: Values = single + np.append(single[1:], 0.0)
    return both


def _as_array(values: Tensor) -> Values:
    array: Values = values.detach().double().cpu().numpy()
    return array
