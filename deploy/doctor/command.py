"""`aegis doctor hospital|server`: one command that says what is wrong and how to mend it; it changes nothing.

The checks are imported when they are asked for, so that `aegis` starts without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from deploy.doctor.checks import Check, SiteT, Status, carry_out
from deploy.doctor.display import as_json as render_json
from deploy.doctor.display import show
from deploy.exits import usage_errors
from federation.errors import ConfigurationError

doctor = typer.Typer(no_args_is_help=True, help="Find what is wrong with this hospital or server; nothing is changed.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
NoNetwork = Annotated[bool, typer.Option("--no-network", help="Open no connection.")]
_POLICY = "site.toml"
_LARGEST_PORT = 65535


@doctor.callback()
def _group() -> None:
    """Find what is wrong with this hospital or server; nothing is changed."""


@doctor.command("hospital")
def hospital_command(
    kit: Annotated[Path, typer.Option(help="Folder of the kit.")] = Path("/etc/aegis"),
    policy: Annotated[Path | None, typer.Option(help="The site.toml; by default the one in the kit's folder.")] = None,
    no_network: NoNetwork = False,
    as_json: AsJson = False,
) -> None:
    """Check a hospital: kit, network, policy, images, volumes, ledger, node, machine. Exit code 1: something failed."""
    from deploy.doctor.catalogue import HOSPITAL_CHECKS
    from deploy.doctor.hospital import Hospital

    site = Hospital(kit_folder=kit, policy_path=policy or kit / _POLICY)
    _examine(HOSPITAL_CHECKS, site, network=not no_network, as_json=as_json)


@doctor.command("server")
def server_command(
    folder: Annotated[Path, typer.Option(help="The coordinator's folder.")],
    database: Annotated[Path | None, typer.Option(help="The SuperLink's SQLite file.")] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder of the runs.")] = None,
    edge: Annotated[str, typer.Option(help="HOST:PORT at which hospitals reach the server.")] = "",
    no_network: NoNetwork = False,
    as_json: AsJson = False,
) -> None:
    """Check a server: consortium, certificates, database, runs, edge, machine. Exit code 1: something failed."""
    from deploy.doctor.catalogue import SERVER_CHECKS
    from deploy.doctor.server import Server

    with usage_errors():
        address = _parse_address(edge) if edge else None
    site = Server(folder=folder, database=database, runs=runs, edge=address)
    _examine(SERVER_CHECKS, site, network=not no_network, as_json=as_json)


def _examine(checks: Iterable[Check[SiteT]], site: SiteT, *, network: bool, as_json: bool) -> NoReturn:
    if as_json:
        results = list(carry_out(checks, site, network=network))
        typer.echo(render_json(results))
    else:
        with Console(stderr=True).status("") as spinner:
            results = list(carry_out(checks, site, network=network, started=spinner.update))
        show(results, Console())
    raise typer.Exit(1 if any(result.status is Status.FAILED for result in results) else 0)


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= _LARGEST_PORT:
        raise ConfigurationError(f"Expected --edge=HOST:PORT, found {text!r}.")
    return host.strip("[]"), int(port)
