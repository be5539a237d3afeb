"""Results for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deploy.doctor.checks import Result, Status, count

_ORDER = (Status.FAILED, Status.WARNING, Status.SKIPPED, Status.OK)
_STYLES = {Status.FAILED: "bold red", Status.WARNING: "yellow", Status.SKIPPED: "dim", Status.OK: "green"}


def as_json(results: Sequence[Result]) -> str:
    """Return all results, in the order in which they came, and how many there are of each status."""
    content = {"results": [result.as_dict() for result in results], "counts": count(results)}
    return json.dumps(content, indent=1, ensure_ascii=False)


def show(results: Sequence[Result], console: Console) -> None:
    """Print a table, what failed first and with how to mend it, and how many there are of each status."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("found", overflow="fold")
    for result in sorted(results, key=lambda item: _ORDER.index(item.status)):
        style = _STYLES[result.status]
        table.add_row(Text(result.status.value, style=style), Text(result.id), _tell(result))
    console.print(table)
    console.print(Text(_sum_up(results)))


def _tell(result: Result) -> Text:
    lines = [f"{result.title}: {result.found}"]
    if result.mend:
        lines += [f"expected: {result.expected}", f"mend: {result.mend}"]
    return Text("\n".join(lines))


def _sum_up(results: Iterable[Result]) -> str:
    return ", ".join(f"{number} {status}" for status, number in count(results).items() if number)
