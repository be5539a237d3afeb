"""`aegis federate run`: the coordinator's command to train with the hospitals that are enrolled."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.exits import exit_codes
from deploy.federate.keeper import Keeper
from deploy.federate.superlink import SuperLink
from deploy.outcome import describe
from deploy.settings import load_configuration
from server_app.run_folder import RunFolder

federate = typer.Typer(no_args_is_help=True, help="Train with the hospitals of a consortium.")


@federate.callback()
def _group() -> None:
    """Train with the hospitals of a consortium."""


@federate.command("run")
def run_command(  # noqa: PLR0913 - one parameter per option
    config: Annotated[Path | None, typer.Option(help="TOML file with the run's tables.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="table.key=value, repeatable.")] = None,
    superlink: Annotated[str, typer.Option(help="host:port of the SuperLink.")] = "superlink:8000",
    ca: Annotated[Path, typer.Option(help="The consortium's certificate authority, PEM.")] = Path("/etc/aegis/ca.crt"),
    app: Annotated[Path, typer.Option(help="Folder of the Flower app.")] = Path("/opt/aegis-app"),
    attempts: Annotated[int, typer.Option(help="How often a crashed run is resumed.", min=0)] = 20,
    again: Annotated[bool, typer.Option(help="Run anew what has ended under this name and these settings.")] = False,
    stay: Annotated[bool, typer.Option(help="Stay after the end until SIGTERM: for engines that restart.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON at the end.")] = False,
) -> None:
    """Start the run, or follow the one that goes on, and resume it after crashes, until it has ended."""
    try:
        with exit_codes(as_json=as_json):
            configuration = load_configuration(app, config, assign or [])
            with tempfile.TemporaryDirectory(prefix="aegis-flower-") as home:
                link = SuperLink(Path(home), superlink, ca)
                keeper = Keeper(runs=link, app=app, configuration=configuration, attempts=attempts, tell=_tell)
                summary = keeper.keep(again=again)
        typer.echo(summary.model_dump_json() if as_json else describe(summary, RunFolder.of(configuration.run)))
    finally:
        if stay:
            _stay()


def _stay() -> None:
    """Do nothing until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.wait(3600.0):
        pass


def _tell(event: str, fields: dict[str, Any]) -> None:
    """Write one JSON line for the container's log."""
    sys.stderr.write(json.dumps({"time": round(time.time(), 3), "event": event, **fields}) + "\n")
    sys.stderr.flush()
