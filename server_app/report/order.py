"""The order in which people expect names: `hospital-2` before `hospital-10`."""

from __future__ import annotations

import re


def natural_key(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return a sort key of `name` that compares runs of ASCII digits as numbers and everything else as text."""
    parts = re.split(r"([0-9]+)", name.casefold())
    # The length of a number without leading zeros orders it before its digits do; no int(), which refuses huge ones.
    keys = tuple(
        (len(part.lstrip("0")) + 1, part.lstrip("0")) if index % 2 else (0, part) for index, part in enumerate(parts)
    )
    return keys, name
