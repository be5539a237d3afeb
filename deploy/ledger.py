"""`aegis ledger`: what a hospital has spent, whether its ledger is sound, and its rows as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from client_app.ledger.inspection import Inspection, inspect_ledger
from client_app.ledger.summary import Line, flatten_row, row_as_dict, summarize
from client_app.ledger.verification import Finding
from deploy.exits import usage_errors
from federation.durable import write_durably
from federation.errors import ConfigurationError, LedgerError
from federation.identifiers import IDENTIFIER_RULE, is_identifier

ledger = typer.Typer(no_args_is_help=True, help="Look at a hospital's privacy ledger; nothing is changed.")

StateFolder = Annotated[Path, typer.Option("--state-dir", help="The ledger's volume.")]
HospitalId = Annotated[str, typer.Option("--hospital-id", help="Whose ledger.")]
KeyFolder = Annotated[
    Path | None, typer.Option("--keys-dir", help="Folder with key and anchor; default: `keys` in --state-dir, if any.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]


@ledger.callback()
def _group() -> None:
    """Look at a hospital's privacy ledger; nothing is changed."""


@ledger.command("show")
def show_command(
    state_dir: StateFolder,
    hospital_id: HospitalId,
    keys_dir: KeyFolder = None,
    rows: Annotated[bool, typer.Option("--rows", help="Show every row, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what every data set has cost and what is left. Exit code 1: the ledger is not sound."""
    found = _inspect(state_dir, hospital_id, keys_dir)
    lines = summarize(found.audit.balance)
    if as_json:
        content = _overview(found, hospital_id) | {"data-sets": [line.as_dict() for line in lines]}
        typer.echo(json.dumps(content | ({"rows": [row_as_dict(row) for row in found.rows]} if rows else {}), indent=1))
    else:
        console = Console()
        console.print(_spend_table(lines, hospital_id))
        if rows:
            console.print(_rows_table(found))
        _explain(found, Console(stderr=True))
    raise typer.Exit(1 if found.audit.findings else 0)


@ledger.command("verify")
def verify_command(
    state_dir: StateFolder, hospital_id: HospitalId, keys_dir: KeyFolder = None, as_json: AsJson = False
) -> None:
    """Find altered, dropped, moved or inserted rows, another ledger's file, and restored backups."""
    found = _inspect(state_dir, hospital_id, keys_dir)
    if as_json:
        typer.echo(json.dumps(_overview(found, hospital_id), indent=1))
    else:
        console = Console()
        faults = len(found.audit.findings)
        verdict = f"{faults} fault{'s' if faults > 1 else ''}" if faults else "sound"
        console.print(f"{hospital_id}: {len(found.rows)} rows, {verdict}", markup=False)
        _explain(found, console)
    raise typer.Exit(1 if found.audit.findings else 0)


@ledger.command("export")
def export_command(
    state_dir: StateFolder,
    hospital_id: HospitalId,
    keys_dir: KeyFolder = None,
    output: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of CSV.")] = False,
) -> None:
    """Write all rows, with digests and seals, as CSV or JSON. Exit code 1: the ledger is not sound."""
    found = _inspect(state_dir, hospital_id, keys_dir)
    if as_json:
        content = _overview(found, hospital_id) | {"rows": [row_as_dict(row) for row in found.rows]}
        text = json.dumps(content, indent=1) + "\n"
    else:
        text = _as_csv(found)
    if output is None:
        typer.echo(text, nl=False)
    else:
        with usage_errors():
            _write(output, text)
    _explain(found, Console(stderr=True))
    raise typer.Exit(1 if found.audit.findings else 0)


def _inspect(state_dir: Path, hospital_id: str, keys_dir: Path | None) -> Inspection:
    with usage_errors():
        if not is_identifier(hospital_id):
            raise ConfigurationError(f"Expected --hospital-id={hospital_id!r} to be {IDENTIFIER_RULE}.")
        for option, folder in (("--state-dir", state_dir), ("--keys-dir", keys_dir)):
            if folder is not None and not folder.is_dir():
                raise ConfigurationError(f"Expected {option}={folder} to be a folder.")
    default = state_dir / "keys"
    try:
        return inspect_ledger(state_dir, hospital_id, key_folder=keys_dir or (default if default.is_dir() else None))
    except LedgerError as error:
        Console(stderr=True).print(str(error), style="red", markup=False)
        raise typer.Exit(1) from None


def _overview(found: Inspection, hospital_id: str) -> dict[str, Any]:
    return {
        "hospital-id": hospital_id,
        "ledger-id": found.audit.balance.genesis.get("ledger"),
        "row-count": len(found.rows),
        "sound": not found.audit.findings,
        "anchored": found.anchored,
        "findings": [{"seq": finding.seq, "text": finding.text} for finding in found.audit.findings],
        "notes": [{"seq": note.seq, "text": note.text} for note in found.audit.notes],
    }


def _explain(found: Inspection, console: Console) -> None:
    """Print findings, notes, and what could not be checked."""
    for finding in found.audit.findings:
        console.print(_told(finding), style="red")
    for note in found.audit.notes:
        console.print(_told(note), style="yellow")
    if not found.anchored:
        told = "Not checked without --keys-dir: seals, a rewritten or replaced file, a restored backup."
        console.print(told, style="yellow", markup=False)


def _told(finding: Finding) -> Text:
    return Text(f"row {finding.seq}: {finding.text}" if finding.seq else finding.text)


def _spend_table(lines: list[Line], hospital_id: str) -> Table:
    """Return the spending of every data set, narrow enough for 80 columns."""
    table = Table(title=Text(f"Privacy ledger of {hospital_id}"), box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("data set", min_width=18, overflow="fold")
    for head in ("spent", "cap", "left", "linear", "RDP", "PLD", "releases", "lost"):
        table.add_column(head, justify="right", no_wrap=True)
    for line in lines:
        row = line.as_dict()
        spent = row["spent"]
        counted = f"{row['account']} at {row['delta']:g}" if row["account"] else "no mechanism"
        note = "" if row["claimable"] else "\n  no epsilon holds"
        table.add_row(
            Text(f"{line.data_set}\n  {counted}{note}"),
            _up(spent.get(row["account"])),
            _shown(row["cap"]),
            _down(row["left"]),
            *map(_up, spent.values()),
            str(row["releases"]),
            str(row["open"] + row["lost"]),
        )
    return table


def _up(value: float | None) -> str:
    """Return what was spent in three decimals, never less than it is."""
    return "-" if value is None else f"{math.ceil(value * 1000 - 1e-6) / 1000:.3f}"


def _down(value: float | None) -> str:
    """Return what is left in three decimals, never more than it is."""
    return "-" if value is None else f"{math.floor(value * 1000) / 1000:.3f}"


def _rows_table(found: Inspection) -> Table:
    table = Table(
        "row", "kind", "time", "run", "message", "data set", "masking", "noise", "linear", "RDP", "PLD", "closes"
    )
    for row in found.rows:
        flat = flatten_row(row)
        names = ("kind", "time", "run", "message", "data-set", "masking")
        numbers = ("noise-multiplier", "linear-after", "rdp-after", "pld-after", "reserve")
        table.add_row(str(row.seq), *(Text(flat[name]) for name in names), *(_shown(flat[name]) for name in numbers))
    return table


def _shown(value: float | str | None) -> str:
    return "-" if value in (None, "") else f"{value:.4g}" if isinstance(value, float) else str(value)


def _as_csv(found: Inspection) -> str:
    records = [flatten_row(row) for row in found.rows]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(records[0]) if records else ["seq"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _write(output: Path, text: str) -> None:
    try:
        write_durably(output, text.encode())
    except OSError as error:
        raise ConfigurationError(f"Expected --output={output} to be writable ({error.strerror}).") from error
