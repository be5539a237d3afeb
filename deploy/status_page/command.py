"""`aegis status`: the page of one hospital, the same in a terminal, and its stop switch."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from client_app.policy import SitePolicy, read_policy
from deploy.exits import exit_codes
from deploy.node.pause import is_paused, pause, resume
from deploy.status_page.observer import Observer
from deploy.status_page.terminal import show
from deploy.status_page.view import build_view
from federation.errors import ConfigurationError, SiteError

status = typer.Typer(no_args_is_help=True, help="See how this hospital stands, and pause or resume it.")

_KIT = Path("/etc/aegis")
_PORT = 8077
_LARGEST_PORT = 65535

Policy = Annotated[Path, typer.Option("--policy", help="The site.toml.")]
KitFolder = Annotated[Path, typer.Option("--kit", help="Folder with kit.toml and ca.crt.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]


@status.callback()
def _group() -> None:
    """See how this hospital stands, and pause or resume it."""


@status.command("serve")
def serve_command(
    policy: Policy,
    kit: KitFolder = _KIT,
    host: Annotated[str, typer.Option(help="Address to listen on; 127.0.0.1: this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=_LARGEST_PORT, help="Port to listen on.")] = _PORT,
    name: Annotated[
        list[str] | None, typer.Option(help="Another name that browsers and monitoring call it by; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve the status page until told to end. It has no accounts: whoever reaches the port sees it, and may pause."""
    from deploy.status_page.application import make_status_app
    from deploy.web.application import serve

    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    typer.echo(json.dumps({"status": "serving", "address": address}) if as_json else f"Status page: {address}")
    serve(make_status_app(Observer(policy, kit), names=name or ()), host=host, port=port)


@status.command("show")
def show_command(policy: Policy, kit: KitFolder = _KIT, as_json: AsJson = False) -> None:
    """Show the same as the page. Exit code 1: not connected, or the ledger or the policy needs somebody."""
    view = build_view(Observer(policy, kit).look(time.time()))
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(view), indent=1))
    else:
        show(view, Console())
    raise typer.Exit(0 if view.well else 1)


@status.command("pause")
def pause_command(policy: Policy, as_json: AsJson = False) -> None:
    """Stop taking part: the node stops within seconds, and nothing leaves until `resume`."""
    with exit_codes(as_json=as_json):
        found = _read_policy(policy)
        state_dir = Path(found.state_dir)
        if not is_paused(state_dir):
            pause(state_dir, by=f"the command line (user {os.getuid()})")
        _tell(found, "paused", "nothing leaves it until `aegis status resume`", as_json=as_json)


@status.command("resume")
def resume_command(policy: Policy, as_json: AsJson = False) -> None:
    """Take part again: the node connects within seconds."""
    with exit_codes(as_json=as_json):
        found = _read_policy(policy)
        resume(Path(found.state_dir))
        _tell(found, "resumed", "the node connects within seconds, if its supervisor runs", as_json=as_json)


def _read_policy(path: Path) -> SitePolicy:
    try:
        return read_policy(path)
    except SiteError as error:
        raise ConfigurationError(str(error)) from None


def _tell(policy: SitePolicy, done: str, consequence: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"status": done, "hospital-id": policy.hospital_id}))
    else:
        typer.echo(f"{policy.hospital_id} is {done}: {consequence}.")
