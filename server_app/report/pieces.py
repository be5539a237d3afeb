"""What a page is put together from: named numbers and drawings with their captions."""

from __future__ import annotations

from dataclasses import dataclass

from server_app.report.formats import Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One named number with an explanation below it; `subject` is a name that belongs to the number."""

    label: str
    value: Value
    note: str = ""
    subject: str = ""
    alarming: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """A drawing with its title and what it shows; `svg` is None when there is nothing to draw, and `empty` says so."""

    title: str
    caption: str
    svg: str | None
    empty: str
