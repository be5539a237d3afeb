"""A chapter of the page on asynchronous aggregation: what one command measures, claims and shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim

Results = dict[str, Result]


def draw_nothing(results: Results, folder: Path) -> None:
    """Draw no plot."""
    del results, folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One command's share of the page.

    Attributes:
        command: name of the command, `aegis experiment <command>`.
        parts: what can be measured alone.
        cells: from parts, data folder (empty: download) and source tree to cells; unknown parts have none.
        claims: from the finished cells of all chapters to this one's claims.
        render: from the finished cells of all chapters to sections of Markdown; none when nothing was measured.
        draw: writes plots of the finished cells into the folder of the results pages.
    """

    command: str
    parts: tuple[str, ...]
    cells: Callable[[Sequence[str], str, Path], list[Cell]]
    claims: Callable[[Results], list[Claim]]
    render: Callable[[Results], Sequence[str]]
    draw: Callable[[Results, Path], None] = draw_nothing
