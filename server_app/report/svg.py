"""Matplotlib drawings as SVG that can stand inside a page: no font, no date, no colour and no id of its own.

Text stays text, so a reader can select and search it. Colours become CSS variables, so a drawing follows the light or
dark scheme of its page. Every id carries the name of the drawing, so several fit into one document.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# The series colours are those of Okabe and Ito, which colour-blind readers can tell apart.
INK, GRID, FAINT = "#26323d", "#d5dce2", "#8b98a5"
BLUE, GREEN, RED, AMBER = "#0072b2", "#009e73", "#d55e00", "#e69f00"

_VARIABLES = {
    INK: "--plot-ink",
    GRID: "--plot-grid",
    FAINT: "--plot-faint",
    BLUE: "--plot-blue",
    GREEN: "--plot-green",
    RED: "--plot-red",
    AMBER: "--plot-amber",
}

_WIDTH_IN = 4.6

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.handlelength": 1.9,
    "legend.columnspacing": 1.3,
    "lines.markersize": 4.5,
    "savefig.transparent": True,
}


def draw(name: str, paint: Callable[[Axes], None], height_in: float = 3.0) -> str:
    """Return what `paint` draws, with a legend above it, as an `<svg>` element.

    The caller's matplotlib settings are neither used nor changed.

    Args:
        name: prefix of all ids; letters only, unique in the document.
        paint: draws on the axes it is given.
        height_in: height in inches at a width of 4.6 inches.
    """
    buffer = io.StringIO()
    with mpl.rc_context(), warnings.catch_warnings():
        # Fonts are chosen by the browser; that ours lacks a glyph only matters for measuring.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        mpl.rcParams["svg.hashsalt"] = name
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside upper left", ncols=min(4, len(labels)))
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    return _inline(buffer.getvalue(), name)


def _inline(document: str, name: str) -> str:
    drawing = document[document.index("<svg") :]
    drawing = re.sub(r"<style[^>]*>[^<]*</style>|<!--.*?-->", "", drawing, flags=re.DOTALL)
    # Within text "<" is escaped, so this reaches tags only and a name that looks like an attribute stays as it is.
    drawing = re.sub(r"<[^>]+>", lambda tag: _adapt_tag(tag.group(), name), drawing)
    return re.sub(r"\s*\n\s*", "\n", drawing).strip()


def _adapt_tag(tag: str, name: str) -> str:
    if tag.startswith("<svg"):
        box = re.search(r'viewBox="[^"]*"', tag)
        return f'<svg {box.group() if box else ""} aria-hidden="true">'
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'xlink:href="#|href="#', f'href="#{name}-', tag)
    tag = tag.replace("url(#", f"url(#{name}-")
    return re.sub(r"#[0-9a-f]{6}\b", lambda colour: _variable(colour.group()), tag)


def _variable(colour: str) -> str:
    return f"var({_VARIABLES[colour]}, {colour})" if colour in _VARIABLES else colour
