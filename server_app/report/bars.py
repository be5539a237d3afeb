"""The plots with a bar for every hospital: what became of its tasks, how much of the model it is, how old it was.

Up to `MOST_LINES` hospitals are named; more are ranked along the axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from server_app.report.labels import MOST_LINES, short_name, whole_numbers
from server_app.report.order import natural_key
from server_app.report.svg import AMBER, BLUE, FAINT, GREEN, GRID, RED, draw
from server_app.summary import HospitalSummary

_SCORES = "evaluation:"
_BAR, _MARK = 0.7, 0.8

_Counts = npt.NDArray[np.int64]
_Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """One bar of every hospital; `low` and `high` are the part of its height that it takes."""

    label: str
    colour: str
    low: float = -_BAR / 2
    high: float = _BAR / 2


def participation_plot(hospitals: Mapping[str, HospitalSummary]) -> str | None:
    """Return what became of the tasks sent to each hospital, fewest applied updates first; None without hospitals."""
    if not hospitals:
        return None
    ids = sorted(hospitals, key=lambda key: (hospitals[key].updates, natural_key(key)))
    applied = np.array([hospitals[key].updates for key in ids])
    discarded = np.array([hospitals[key].discarded for key in ids])
    refused = np.array([_refused_updates(hospitals[key]) for key in ids]) - discarded
    sent = np.array([hospitals[key].dispatched for key in ids])
    unused = np.maximum(0, sent - applied - refused - discarded)
    few = len(ids) <= MOST_LINES

    def paint(axes: Axes) -> None:
        base = np.zeros_like(applied)
        parts = (
            ("applied", applied, BLUE),
            ("discarded", discarded, GREEN),
            ("refused", refused, AMBER),
            ("open at the end", unused, GRID),
        )
        for label, counts, colour in parts:
            if counts.any():
                _draw_bars(axes, counts, base, _Part(label=label, colour=colour), few=few)
                base = base + counts
        (_mark_silent_names if few else _mark_silent_ranks)(axes, applied, base)
        _scale(axes, ids, float(base.max()), order="fewest applied updates first")
        (axes.xaxis if few else axes.yaxis).set_major_locator(whole_numbers())
        (axes.set_xlabel if few else axes.set_ylabel)("training tasks")

    return draw("participation", paint, height_in=_height_in(len(ids)))


def share_plot(hospitals: Mapping[str, HospitalSummary]) -> str | None:
    """Return each hospital's share of updates and of weight beside that of its size; None when nothing has weight.

    The hospital with the least weight for its size stands first.
    """
    ids = sorted(weight_for_size(hospitals), key=lambda key: (weight_for_size(hospitals)[key], natural_key(key)))
    if not ids:
        return None
    applied = np.array([hospitals[key].updates for key in ids], dtype=np.float64)
    weight = np.array([hospitals[key].weight_share for key in ids], dtype=np.float64)
    size = np.array([hospitals[key].size_share for key in ids], dtype=np.float64)
    updates = applied / max(1.0, float(applied.sum()))
    few = len(ids) <= MOST_LINES

    def paint(axes: Axes) -> None:
        nothing = np.zeros_like(weight)
        if few:
            _draw_bars(axes, updates, nothing, _Part(label="updates", colour=FAINT, high=0.0), few=few)
        _draw_bars(axes, weight, nothing, _Part(label="weight", colour=BLUE, low=0.0 if few else -_BAR / 2), few=few)
        _draw_marks(axes, size, _Part(label="by size alone", colour=RED), few=few)
        top = max(float(values.max()) for values in (updates, weight, size))
        _scale(axes, ids, top, order="least weight for its size first", least=0.01)
        (axes.set_xlabel if few else axes.set_ylabel)("share")

    return draw("shares", paint, height_in=_height_in(len(ids)))


def age_plot(hospitals: Mapping[str, HospitalSummary]) -> str | None:
    """Return mean and largest staleness of the updates of each hospital, oldest first; None when none was applied."""
    ages = {key: part.staleness for key, part in hospitals.items() if part.staleness is not None}
    if not ages:
        return None
    ids = sorted(ages, key=lambda key: (-ages[key].mean, natural_key(key)))
    mean = np.array([ages[key].mean for key in ids])
    largest = np.array([ages[key].max for key in ids], dtype=np.float64)
    few = len(ids) <= MOST_LINES

    def paint(axes: Axes) -> None:
        _draw_bars(axes, mean, np.zeros_like(mean), _Part(label="mean", colour=BLUE), few=few)
        _draw_marks(axes, largest, _Part(label="oldest", colour=AMBER), few=few)
        _scale(axes, ids, float(largest.max()), order="oldest first")
        (axes.xaxis if few else axes.yaxis).set_major_locator(whole_numbers())
        (axes.set_xlabel if few else axes.set_ylabel)("versions since dispatch")

    return draw("ages", paint, height_in=_height_in(len(ids)))


def weight_for_size(hospitals: Mapping[str, HospitalSummary]) -> dict[str, float]:
    """Return each hospital's share of weight over that which its size alone would give it, where both are known."""
    return {
        name: part.weight_share / part.size_share
        for name, part in hospitals.items()
        if part.weight_share is not None and part.size_share
    }


def _refused_updates(hospital: HospitalSummary) -> int:
    return sum(count for reason, count in hospital.refused.items() if not reason.startswith(_SCORES))


def _height_in(count: int) -> float:
    return 0.95 + 0.24 * count if count <= MOST_LINES else 3.0


def _draw_bars(axes: Axes, values: _Counts | _Shares, base: _Counts | _Shares, part: _Part, *, few: bool) -> None:
    """Draw one bar for every hospital: lying where there are few, else standing."""
    places = np.arange(len(values)) + (part.low + part.high) / 2
    thick = part.high - part.low
    if few:
        axes.barh(places, values, left=base, height=thick, color=part.colour, label=part.label)
    else:
        axes.bar(places, values, bottom=base, width=thick, color=part.colour, label=part.label)
    number = len(axes.containers)
    for rank, bar in enumerate(axes.containers[-1]):
        bar.set_gid(f"part-{number}-{rank}")


def _draw_marks(axes: Axes, values: _Shares, part: _Part, *, few: bool) -> None:
    """Draw one stroke across the bar of every hospital."""
    places, half = np.arange(len(values)), _MARK / 2
    strokes = axes.vlines if few else axes.hlines
    strokes(values, places - half, places + half, color=part.colour, linewidth=2.0, label=part.label).set_gid("marks")


def _mark_silent_names(axes: Axes, applied: _Counts, totals: _Counts) -> None:
    for rank in np.flatnonzero(applied == 0):
        place = (float(totals[rank]), float(rank))
        axes.annotate("silent", place, xytext=(4, 0), textcoords="offset points", va="center", color=RED)


def _mark_silent_ranks(axes: Axes, applied: _Counts, totals: _Counts) -> None:
    silent, top = np.flatnonzero(applied == 0), max(1.0, float(totals.max()))
    if silent.size:
        (marks,) = axes.plot(silent, totals[silent] + 0.03 * top, "x", color=RED, markersize=3.5, label="silent")
        marks.set_gid("silent")


def _scale(axes: Axes, ids: Sequence[str], top: float, *, order: str, least: float = 1.0) -> None:
    """Scale the axis of values to `top`, and name the hospitals or say how many there are and in which order."""
    top = max(least, top)
    if len(ids) <= MOST_LINES:
        axes.set_yticks(range(len(ids)), [short_name(name) for name in ids])
        axes.set_ylim(len(ids) - 0.4, -0.6)
        axes.set_xlim(0.0, top * 1.12)
        axes.tick_params(axis="y", length=0.0)
        axes.grid(visible=False, axis="y")
    else:
        axes.set_xlim(-0.8, len(ids) - 0.2)
        axes.set_ylim(0.0, top * 1.08)
        axes.set_xticks([])
        axes.set_xlabel(f"{len(ids)} hospitals, {order}")
