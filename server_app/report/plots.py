"""The curves of a report: which series, in which style, and what stands in their place when there is none.

Series differ in line style or shape as well as in colour, for print and for colour-blind readers. Read next:
`server_app.report.bars`, the plots with a bar for every hospital.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from federation.metrics import Scores
from server_app.report.labels import MOST_LINES, short_name, whole_numbers
from server_app.report.order import natural_key
from server_app.report.svg import AMBER, BLUE, FAINT, GREEN, RED, draw
from server_app.summary import CurvePoint

_MOST_MARKERS = 15

_Points = list[tuple[int, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    label: str
    colour: str
    style: str = "-"
    width: float = 1.8
    marker: str = "o"


def quality_plot(curve: Sequence[CurvePoint]) -> str | None:
    """Return accuracy and AUROC on the server's test images per version; None without any such evaluation."""
    accuracy = _central(curve, lambda scores: scores.accuracy)
    auroc = _central(curve, lambda scores: scores.auroc)
    if not accuracy and not auroc:
        return None

    def paint(axes: Axes) -> None:
        _draw_line(axes, accuracy, _Line(label="accuracy", colour=BLUE))
        _draw_line(axes, auroc, _Line(label="AUROC", colour=GREEN, style="--", marker="s"))
        _scale_versions(axes)
        _scale_shares(axes, [value for _, value in accuracy + auroc])

    return draw("quality", paint)


def loss_plot(curve: Sequence[CurvePoint]) -> str | None:
    """Return the loss per version, on the server's test images and as mean over hospitals; None without any."""
    central = _central(curve, lambda scores: scores.loss)
    mean = _points(curve, lambda point: _mean(scores.loss for scores in point.hospitals.values()))
    if not central and not mean:
        return None

    def paint(axes: Axes) -> None:
        _draw_line(axes, central, _Line(label="server's images", colour=BLUE))
        _draw_line(axes, mean, _Line(label="mean of hospitals", colour=AMBER, style="--", marker="s"))
        _scale_versions(axes)
        axes.set_ylim(0.0, 1.08 * max(value for _, value in central + mean) or 1.0)

    return draw("loss", paint)


def hospital_plot(curve: Sequence[CurvePoint], worst: str | None) -> str | None:
    """Return the accuracy at each hospital per version; None when no hospital was evaluated.

    Up to `MOST_LINES` hospitals have a thin line each; more are drawn as the band that holds the middle 80 %.

    Args:
        curve: evaluations in order.
        worst: hospital whose line is highlighted, if it was evaluated.
    """
    lines = _accuracy_lines(curve)
    if not lines:
        return None
    mean = _points(curve, lambda point: _mean(_accuracies(point)))

    def paint(axes: Axes) -> None:
        if len(lines) > MOST_LINES:
            _draw_band(axes, curve)
        else:
            _draw_thin_lines(axes, [points for hospital, points in lines.items() if hospital != worst])
        _draw_line(axes, mean, _Line(label="mean", colour=BLUE, width=3.0))
        if worst is not None and worst in lines:
            label = f"worst: {short_name(worst)}"
            _draw_line(axes, lines[worst], _Line(label=label, colour=RED, style="--", width=2.0, marker="v"))
        _scale_versions(axes)
        _scale_shares(axes, [value for points in lines.values() for _, value in points])

    return draw("hospitals", paint)


def _points(curve: Sequence[CurvePoint], pick: Callable[[CurvePoint], float | None]) -> _Points:
    picked = ((point.version, pick(point)) for point in curve)
    return [(version, value) for version, value in picked if value is not None and math.isfinite(value)]


def _central(curve: Sequence[CurvePoint], pick: Callable[[Scores], float | None]) -> _Points:
    return _points(curve, lambda point: pick(point.central) if point.central else None)


def _accuracies(point: CurvePoint) -> list[float]:
    return [scores.accuracy for scores in point.hospitals.values() if math.isfinite(scores.accuracy)]


def _accuracy_lines(curve: Sequence[CurvePoint]) -> dict[str, _Points]:
    lines: dict[str, _Points] = {}
    for hospital in sorted({hospital for point in curve for hospital in point.hospitals}, key=natural_key):

        def pick(point: CurvePoint, hospital: str = hospital) -> float | None:
            scores = point.hospitals.get(hospital)
            return scores.accuracy if scores else None

        if points := _points(curve, pick):
            lines[hospital] = points
    return lines


def _mean(values: Iterable[float | None]) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None


def _draw_line(axes: Axes, points: _Points, line: _Line) -> None:
    if not points:
        return
    versions, values = zip(*points, strict=True)
    (artist,) = axes.plot(versions, values, line.style, color=line.colour, label=line.label)
    artist.set_linewidth(line.width)
    artist.set_marker(line.marker if len(points) <= _MOST_MARKERS else "")
    artist.set_gid(f"series-{len(axes.lines)}")


def _draw_thin_lines(axes: Axes, lines: Sequence[_Points]) -> None:
    for index, points in enumerate(lines):
        label = "_" if index else "one hospital"
        _draw_line(axes, points, _Line(label=label, colour=FAINT, width=0.9, marker="."))


def _draw_band(axes: Axes, curve: Sequence[CurvePoint]) -> None:
    columns = [(point.version, accuracies) for point in curve if (accuracies := _accuracies(point))]
    versions = [version for version, _ in columns]
    low, high = np.array([np.quantile(accuracies, [0.1, 0.9]) for _, accuracies in columns]).T
    if len(columns) == 1:  # an area between two points would be invisible
        axes.vlines(versions, low, high, color=FAINT, alpha=0.35, linewidth=9.0, label="middle 80 %").set_gid("band")
        return
    band = axes.fill_between(versions, low, high, color=FAINT, alpha=0.35, linewidth=0.0, label="middle 80 %")
    band.set_gid("band")


def _scale_versions(axes: Axes) -> None:
    versions = axes.dataLim
    if versions.width == 0.0:
        axes.set_xlim(versions.x0 - 0.5, versions.x0 + 0.5)
    axes.xaxis.set_major_locator(whole_numbers())
    axes.set_xlabel("model version")


def _scale_shares(axes: Axes, values: Sequence[float]) -> None:
    low = max(0.0, math.floor(min(values) * 10.0 - 0.2) / 10.0)
    high = min(1.0, math.ceil(max(values) * 10.0 + 0.2) / 10.0)
    axes.set_ylim(low - 0.01, high + 0.01)
