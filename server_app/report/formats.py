"""Numbers as text for people, with the exact value or the reason for its absence beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

MISSING = "\u2013"
"""The en dash that stands for a missing value."""

_SPACE = "\u202f"  # narrow and not broken across lines
_BYTE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A value as shown.

    Attributes:
        text: what stands in the report.
        title: what a reader sees on pointing at it: the exact value, or why there is none.
        detail: what the value cannot be read without, set small beside it.
        missing: whether there is no value.
    """

    text: str
    detail: str = ""
    title: str = ""
    missing: bool = False


def show_count(count: int, title: str = "") -> Value:
    """Return `count` with its thousands set apart."""
    return Value(text=f"{count:,}".replace(",", _SPACE), title=title)


def show_share(share: float | None, why_missing: str) -> Value:
    """Return a share in [0, 1] with three decimals."""
    if share is None:
        return Value(text=MISSING, title=why_missing, missing=True)
    if not math.isfinite(share):
        return Value(text=MISSING, title="the value is not a finite number", missing=True)
    return Value(text=f"{share:.3f}")


def show_bytes(size_bytes: int) -> Value:
    """Return a size in binary units with three significant digits, and the exact one as title."""
    exact = f"{show_count(size_bytes).text} bytes"
    if size_bytes < 1024:
        return Value(text=exact)
    # 999.5 of a unit would be shown as 1000, so it already counts as the next one.
    power = next((power for power in range(1, len(_BYTE_UNITS)) if size_bytes < 999.5 * 1024**power), len(_BYTE_UNITS))
    size, unit = size_bytes / 1024**power, _BYTE_UNITS[power - 1]
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return Value(text=f"{size:.{decimals}f} {unit}", title=exact)


def show_duration(seconds: float | None, why_missing: str = "") -> Value:
    """Return a duration in the units people use for its length."""
    if seconds is None or not math.isfinite(seconds):
        return Value(text=MISSING, title=why_missing or "the value is not a finite number", missing=True)
    if seconds < 59.95:
        return Value(text=f"{seconds:.3g} s" if seconds < 0.95 else f"{seconds:.1f} s")
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    title = f"{seconds:,.1f} s".replace(",", _SPACE)
    if hours < 1:
        return Value(text=f"{minutes} min {second:02d} s", title=title)
    days, hour = divmod(hours, 24)
    return Value(text=f"{days} d {hour} h" if days else f"{hours} h {minute:02d} min", title=title)


def show_epsilon(epsilon: float | None, delta: float | None) -> Value:
    """Return the privacy loss spent, rounded up, beside its delta; `no guarantee` when no mechanism bounds it."""
    if epsilon is None:
        return Value(text="no guarantee", title="no mechanism of the run bounds the privacy loss", missing=True)
    if not math.isfinite(epsilon):
        return Value(text="no guarantee", title="the account gives no finite epsilon", missing=True)
    rounded_up = math.ceil(epsilon * 1000.0 - 1e-6) / 1000.0
    detail = "" if delta is None else f"at \u03b4 = {delta:g}"
    return Value(text=f"{rounded_up:.3f}", detail=detail, title=f"{epsilon!r}, shown rounded up")


def show_reasons(reasons: Mapping[str, int]) -> list[str]:
    """Return the reasons that occurred with their counts, most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [f"{reason} {show_count(count).text}" for reason, count in ordered if count]
