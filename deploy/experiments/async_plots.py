"""Plots of the asynchronous page: accuracy over virtual time by algorithm, and a heat map."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from deploy.experiments.async_runs import Point
from federation.durable import write_durably

Curves = Mapping[str, Sequence[Sequence[Point]]]
"""Curves over virtual time by name of the algorithm, one per seed."""


def draw_curves_over_time(panels: Mapping[str, Curves], path: Path, *, unit_s: float, unit: str) -> None:
    """Write an SVG with one panel per entry of `panels`, the median over seeds of each algorithm with its range.

    Args:
        panels: curves by title of the panel.
        path: of the SVG.
        unit_s: virtual seconds of one unit of the time axis, which is logarithmic.
        unit: its name.
    """
    figure = Figure(figsize=(6.2 * len(panels), 4), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for name, seeds in curves.items():
            times = np.unique([moment for points in seeds for moment, _ in points if moment > 0])
            accuracy = np.array([_held(points, times) for points in seeds])
            (line,) = axes.plot(times / unit_s, np.median(accuracy, axis=0), linewidth=1.8, label=name)
            low, high = accuracy.min(axis=0), accuracy.max(axis=0)
            axes.fill_between(times / unit_s, low, high, alpha=0.15, linewidth=0, color=line.get_color())
        axes.set(title=title, xlabel=unit, ylabel="test accuracy", xscale="log")
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
    _write(figure, path)


def draw_heat_map(
    values: Sequence[Sequence[float]], path: Path, *, rows: Sequence[str], columns: Sequence[str]
) -> None:
    """Write an SVG of `values` in percent as colours and as numbers, the best of each row framed.

    Args:
        values: shape (rows, columns).
        path: of the SVG.
        rows: names of the noise levels.
        columns: names of the decays.
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes, table = figure.subplots(), np.array(values)
    image = axes.imshow(table, cmap="viridis", aspect="auto")
    for row, column in np.ndindex(table.shape):
        best = column == int(table[row].argmax())
        frame = {"facecolor": "none", "edgecolor": "red"} if best else None
        text = f"{table[row, column]:.2f}"
        axes.text(column, row, text, ha="center", va="center", color="white", bbox=frame)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel="decay per version of staleness (alpha)", ylabel="noise")
    figure.colorbar(image, label="test accuracy, %")
    _write(figure, path)


def _held(points: Sequence[Point], times: np.ndarray) -> np.ndarray:
    """Return the accuracy at each of `times`: that of the last version made until then."""
    moments = [moment for moment, _ in points]
    accuracy = np.array([value for _, value in points])
    return accuracy[np.searchsorted(moments, times, side="right") - 1]


def _write(figure: Figure, path: Path) -> None:
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "aegis", "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    write_durably(path, content.getvalue())
