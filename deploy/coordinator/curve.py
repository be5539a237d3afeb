"""The accuracy of a run over its versions as an SVG drawing: lines, axes and words, neither script nor style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from server_app.summary import CurvePoint

_WIDTH, _HEIGHT = 480, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 12, 48, 44
_MOST_TICKS = 7
_MOST_NAME = 40
_SERVER, _WORST = "--accent", "--bad"
_DASHES = "6 4"

_Points = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Where a version and an accuracy lie in the drawing."""

    first: int
    last: int
    low: float
    high: float

    def x(self, version: float) -> float:
        inner = _WIDTH - _LEFT - _RIGHT
        span = self.last - self.first
        return _LEFT + (inner * (version - self.first) / span if span else inner / 2)

    def y(self, accuracy: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (self.high - accuracy) / (self.high - self.low)


def draw_accuracy(curve: Sequence[CurvePoint], worst: str = "") -> str:
    """Return accuracy on the server's images and at the hospital `worst` as an `<svg>` element; empty without any.

    Guarantee: the name of the hospital is escaped; the drawing loads nothing and holds neither script nor style.
    """
    central = [(point.version, point.central.accuracy) for point in curve if point.central]
    at_worst = [(point.version, point.hospitals[worst].accuracy) for point in curve if worst in point.hospitals]
    lines = [[item for item in line if math.isfinite(item[1])] for line in (central, at_worst)]
    points = [item for line in lines for item in line]
    if not points:
        return ""
    scale = _scale_of(points)
    names = ["server's images", f"worst hospital, {_shorten(worst)}"]
    drawn = [
        *_axes(scale),
        *_line(lines[0], scale, colour=_SERVER),
        *_line(lines[1], scale, colour=_WORST, dashes=_DASHES),
        *_legend([(name, line) for name, line in zip(names, lines, strict=True)]),
    ]
    label = "Accuracy over model versions: " + ", ".join(
        f"{name} {line[-1][1]:.3f} at version {line[-1][0]}" for name, line in zip(names, lines, strict=True) if line
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}" '
        f'font-size="13" fill="currentColor">{"".join(drawn)}</svg>'
    )


def _scale_of(points: _Points) -> _Scale:
    """Return a scale that holds `points`; accuracies from one tenth to another."""
    versions = [version for version, _ in points]
    low = max(0.0, math.floor(min(value for _, value in points) * 10) / 10)
    high = min(1.0, math.ceil(max(value for _, value in points) * 10) / 10)
    if high <= low:
        low, high = (low - 0.1, high) if high >= 1.0 else (low, low + 0.1)
    return _Scale(first=min(versions), last=max(versions), low=low, high=high)


def _axes(scale: _Scale) -> list[str]:
    tenths = round((scale.high - scale.low) * 10)
    step = max(1, math.ceil(tenths / 5))
    drawn = []
    for tenth in range(0, tenths + 1, step):
        value = scale.low + tenth / 10
        y = scale.y(value)
        drawn.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.1f}</text>'
        )
    stride = max(1, math.ceil((scale.last - scale.first) / _MOST_TICKS))
    for version in range(scale.first, scale.last + 1, stride):
        x = scale.x(version)
        drawn.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 19}" text-anchor="middle">{version}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawn.append(f'<text x="{middle:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">model version</text>')
    return drawn


def _line(points: _Points, scale: _Scale, *, colour: str, dashes: str = "") -> list[str]:
    if not points:
        return []
    places = [(scale.x(version), scale.y(value)) for version, value in points]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    line = f'<polyline points="{corners}" fill="none" stroke="var({colour})" stroke-width="2"{dashed}/>'
    x, y = places[-1]
    return [line, f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="var({colour})"/>']


def _legend(named: Sequence[tuple[str, _Points]]) -> list[str]:
    drawn: list[str] = []
    for index, (name, points) in enumerate(named):
        if not points:
            continue
        colour, dashes = (_WORST, f' stroke-dasharray="{_DASHES}"') if index else (_SERVER, "")
        y = 14 + 20 * len(drawn)
        drawn.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + 26}" y1="{y - 4}" y2="{y - 4}" stroke="var({colour})" '
            f'stroke-width="2"{dashes}/><text x="{_LEFT + 34}" y="{y}">{escape(name)}</text>'
        )
    return drawn


def _shorten(name: str) -> str:
    return name if len(name) <= _MOST_NAME else name[: _MOST_NAME - 1] + "\u2026"
