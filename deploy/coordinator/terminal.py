"""The overview in a terminal, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deploy.coordinator.overview import Overview
from deploy.coordinator.view import RunView, build_view
from deploy.coordinator.watch import Finding

_COLOURS = {"good": "green", "warn": "yellow", "bad": "red", "idle": "dim"}
_OVERVIEW, _FINDINGS = TypeAdapter(Overview), TypeAdapter(Sequence[Finding])


def as_json_text(overview: Overview, findings: Sequence[Finding]) -> str:
    """Return `overview` with `findings` as JSON; numbers that are not finite are null."""
    content: dict[str, Any] = json.loads(_OVERVIEW.dump_json(overview))
    return json.dumps({**content, "findings": json.loads(_FINDINGS.dump_json(findings))}, indent=1)


def show(overview: Overview, findings: Sequence[Finding], console: Console) -> None:
    """Print what the page shows, without drawings and older runs."""
    view = build_view(overview)
    console.print(Text(f"{view.title}, {view.moment}", style="bold"))
    for finding in findings:
        console.print(Text(f"{finding.subject}: {finding.text}", style=_COLOURS[finding.weight.value]))
    seats = Table("hospital", "connection", "last contact", box=box.SIMPLE)
    for seat in view.seats:
        mood = Text(f"{seat.connection} {seat.since}".rstrip(), style=_COLOURS[seat.mood])
        seats.add_row(Text(seat.hospital), mood, seat.contact.text)
    if view.seats:
        console.print(seats)
    if view.run is None:
        console.print("There is no run yet.")
    else:
        _show_run(view.run, console)


def _show_run(run: RunView, console: Console) -> None:
    figures = [f"{item.label.lower()} {item.value.text}" for item in run.figures]
    console.print(Text(f"run {run.name}: {run.standing}, last event {run.newest.text}; {', '.join(figures)}"))
    table = Table(box=box.SIMPLE)
    table.add_column("hospital", overflow="fold")
    for name in ("updates", "stale", "refused", "spent", "left", "accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("last update", no_wrap=True)
    for part in run.parts:
        values = (part.updates, part.staleness, part.refused, part.spent, part.left, part.accuracy, part.updated)
        table.add_row(Text(part.hospital), *(value.text for value in values))
    console.print(table)
    for refusal in run.refusals:
        console.print(Text(f"refused {refusal.reason}: {refusal.total.text}"))
