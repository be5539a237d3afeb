"""One plot: accuracy per version, mean over seeds with its deviation and every seed as a thin line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from federation.durable import write_durably


def draw_curves(curves: Sequence[list[dict[str, Any]]], path: Path) -> None:
    """Write an SVG of `curves`, one per seed, all evaluated at the same versions, to `path`."""
    versions = [point["version"] for point in curves[0]]
    accuracy = np.array([[point["accuracy"] for point in curve] for curve in curves])
    mean, deviation = accuracy.mean(axis=0), accuracy.std(axis=0, ddof=min(1, len(curves) - 1))
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between(versions, mean - deviation, mean + deviation, alpha=0.25, linewidth=0, label="± one deviation")
    for curve in accuracy:
        axes.plot(versions, curve, color="0.6", linewidth=0.7)
    axes.plot(versions, mean, linewidth=2, label=f"mean of {len(curves)} seeds")
    axes.set(xlabel="model version", ylabel="test accuracy", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "aegis", "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    write_durably(path, content.getvalue())
