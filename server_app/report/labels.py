"""Names and numbers on the axes of drawings."""

from __future__ import annotations

from matplotlib.ticker import MaxNLocator

MOST_LINES = 20
"""With more hospitals than this, single lines and names give way to a band and to ranks."""

_LONGEST_LABEL = 22


def short_name(name: str) -> str:
    """Return `name` on one line, cut off where it is too long for an axis."""
    words = " ".join(name.split())
    return words if len(words) <= _LONGEST_LABEL else words[: _LONGEST_LABEL - 1] + "\u2026"


def whole_numbers() -> MaxNLocator:
    """Return what places ticks at few whole numbers, at least one."""
    return MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
