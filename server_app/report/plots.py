"""What the plots of a report show: which series, in which style, and what stands in their place when there is none.

Series differ in line style or shape as well as in colour, for print and for colour-blind readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from federation.metrics import Scores
from server_app.report.order import natural_key
from server_app.report.svg import AMBER, BLUE, FAINT, GREEN, GRID, RED, draw
from server_app.summary import CurvePoint, HospitalSummary

MOST_LINES = 20
"""With more hospitals than this, single lines and names give way to a band and to ranks."""

_MOST_MARKERS = 15
_LONGEST_LABEL = 22

_Points = list[tuple[int, float]]
_Counts = npt.NDArray[np.int64]


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
            label = f"worst: {_short(worst)}"
            _draw_line(axes, lines[worst], _Line(label=label, colour=RED, style="--", width=2.0, marker="v"))
        _scale_versions(axes)
        _scale_shares(axes, [value for points in lines.values() for _, value in points])

    return draw("hospitals", paint)


def participation_plot(hospitals: Mapping[str, HospitalSummary]) -> str | None:
    """Return what became of the tasks sent to each hospital, fewest applied updates first; None without hospitals."""
    if not hospitals:
        return None
    ids = sorted(hospitals, key=lambda key: (hospitals[key].updates, natural_key(key)))
    applied = np.array([hospitals[key].updates for key in ids])
    refused = np.array([sum(hospitals[key].refused.values()) for key in ids])
    sent = np.array([hospitals[key].dispatched for key in ids])
    unused = np.maximum(0, sent - applied - refused)
    bars = _horizontal_bars if len(ids) <= MOST_LINES else _vertical_bars

    def paint(axes: Axes) -> None:
        base = np.zeros_like(applied)
        parts = (("applied", applied, BLUE), ("refused", refused, AMBER), ("no result", unused, GRID))
        for label, counts, colour in parts:
            if counts.any():
                bars(axes, counts, base, _Line(label=label, colour=colour))
                base = base + counts
        (_name_ranks if len(ids) <= MOST_LINES else _count_ranks)(axes, ids, applied, base)

    return draw("participation", paint, height_in=0.95 + 0.24 * len(ids) if len(ids) <= MOST_LINES else 3.0)


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


def _short(name: str) -> str:
    words = " ".join(name.split())
    return words if len(words) <= _LONGEST_LABEL else words[: _LONGEST_LABEL - 1] + "\u2026"


def _whole_numbers() -> MaxNLocator:
    return MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)


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
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.set_xlabel("model version")


def _scale_shares(axes: Axes, values: Sequence[float]) -> None:
    low = max(0.0, math.floor(min(values) * 10.0 - 0.2) / 10.0)
    high = min(1.0, math.ceil(max(values) * 10.0 + 0.2) / 10.0)
    axes.set_ylim(low - 0.01, high + 0.01)


def _horizontal_bars(axes: Axes, counts: _Counts, base: _Counts, part: _Line) -> None:
    axes.barh(np.arange(len(counts)), counts, left=base, height=0.7, color=part.colour, label=part.label)
    _name_bars(axes)


def _vertical_bars(axes: Axes, counts: _Counts, base: _Counts, part: _Line) -> None:
    axes.bar(np.arange(len(counts)), counts, bottom=base, width=0.85, color=part.colour, label=part.label)
    _name_bars(axes)


def _name_bars(axes: Axes) -> None:
    part = len(axes.containers)
    for rank, bar in enumerate(axes.containers[-1]):
        bar.set_gid(f"part-{part}-{rank}")


def _name_ranks(axes: Axes, ids: Sequence[str], applied: _Counts, totals: _Counts) -> None:
    for rank in np.flatnonzero(applied == 0):
        place = (float(totals[rank]), float(rank))
        axes.annotate("silent", place, xytext=(4, 0), textcoords="offset points", va="center", color=RED)
    axes.set_yticks(range(len(ids)), [_short(name) for name in ids])
    axes.set_ylim(len(ids) - 0.4, -0.6)
    axes.set_xlim(0.0, max(1.0, float(totals.max())) * 1.12)
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.tick_params(axis="y", length=0.0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("training tasks")


def _count_ranks(axes: Axes, ids: Sequence[str], applied: _Counts, totals: _Counts) -> None:
    top = max(1.0, float(totals.max()))
    silent = np.flatnonzero(applied == 0)
    if silent.size:
        (marks,) = axes.plot(silent, totals[silent] + 0.03 * top, "x", color=RED, markersize=3.5, label="silent")
        marks.set_gid("silent")
    axes.set_xlim(-0.8, len(ids) - 0.2)
    axes.set_ylim(0.0, top * 1.08)
    axes.set_xticks([])
    axes.yaxis.set_major_locator(_whole_numbers())
    axes.set_xlabel(f"{len(ids)} hospitals, fewest applied updates first")
    axes.set_ylabel("training tasks")
