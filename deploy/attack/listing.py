"""`aegis attack list`: what each attack needs of a server, and which defences of other papers can be tried."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from attacks.defences.registry import BASELINES
from attacks.registry import list_attacks
from attacks.threat_model import CONTROLS, KNOWLEDGE

_WIDTH = 150


def show_list(*, as_json: bool) -> None:
    """Print all attacks and baseline defences."""
    attacks, defences = describe_attacks(), describe_defences()
    if as_json:
        words = {"controls": dict(CONTROLS), "knows": dict(KNOWLEDGE)}
        typer.echo(json.dumps({"attacks": attacks, "defences": defences, "words": words}, indent=1))
        return
    # In a narrower terminal lines break; a table squeezed into it would hide what it says.
    console = Console(width=max(Console().width, _WIDTH))
    table = Table(Column("attack", no_wrap=True), "source", "controls", "knows", "rounds", "sees", box=box.SIMPLE)
    for row in attacks:
        joined = [", ".join(row[key]) or "-" for key in ("controls", "knows")]
        table.add_row(*map(escape, (row["name"], row["source"], *joined, str(row["rounds"]), row["sees"])))
    console.print(table)
    for name, meaning in [*CONTROLS.items(), *KNOWLEDGE.items()]:
        console.print(f"{name}: {meaning}", markup=False, highlight=False)
    table = Table("--baseline", "defence", "source", box=box.SIMPLE)
    for row in defences:
        table.add_row(*map(escape, (row["option"], row["name"], row["source"])))
    console.print(table)


def describe_attacks() -> list[dict[str, Any]]:
    """Return what each attack is and needs."""
    return [
        {
            "name": attack.name,
            "source": attack.source,
            "controls": sorted(attack.needs.controls),
            "knows": sorted(attack.needs.knows),
            "rounds": attack.needs.rounds,
            "sees": attack.needs.sees,
        }
        for attack in list_attacks()
    ]


def describe_defences() -> list[dict[str, str]]:
    """Return the baseline defences with the names that `--baseline` takes."""
    made = {option: make() for option, make in BASELINES.items()}
    return [{"option": option, "name": defence.name, "source": defence.source} for option, defence in made.items()]
