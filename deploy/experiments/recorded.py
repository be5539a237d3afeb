"""Cells that a results page already records, so that measuring one part does not take the others off the page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deploy.experiments.cells import Cell, Result

Making = dict[str, str]

_PLACES = ("root", "data.root")
"""Settings that say where data lie on one machine, and nothing about what was measured."""


def digest_settings(settings: dict[str, Any]) -> str:
    """Return 16 hexadecimal digits that stand for the settings of a cell wherever its data lie."""
    text = json.dumps(_without_places(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded_cells(
    page: Path, cells: Sequence[Cell], restore: Callable[[Result], Result]
) -> dict[str, tuple[Result, Making]]:
    """Return result and making of those `cells` that `page` records with the settings that they have today.

    Args:
        page: the results file in JSON; one that is not there records nothing.
        cells: which are wanted.
        restore: from a cell as the page has it to a result.
    """
    if not page.is_file():
        return {}
    recorded = json.loads(page.read_text(encoding="utf-8")).get("cells", {})
    found = {}
    for cell in cells:
        made = recorded.get(cell.name, {}).get("made", {})
        if made.get("settings") == digest_settings(cell.settings):
            result = {key: value for key, value in recorded[cell.name].items() if key != "made"}
            found[cell.name] = restore(result), made
    return found


def _without_places(settings: object) -> object:
    if isinstance(settings, dict):
        return {key: _without_places(value) for key, value in settings.items() if key not in _PLACES}
    if isinstance(settings, list | tuple):
        return [_without_places(value) for value in settings]
    return settings
