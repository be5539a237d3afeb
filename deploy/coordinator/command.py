"""`aegis coordinator`: the page of the consortium's coordinator, and the same in a terminal; nothing is changed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deploy.exits import exit_codes
from deploy.extras import require_extras
from deploy.federate.superlink import CONNECTION
from deploy.federate.superlink import SuperLink as Connected
from federation.errors import ConfigurationError

if TYPE_CHECKING:
    from deploy.coordinator.overview import Lookout

coordinator = typer.Typer(no_args_is_help=True, help="See who is connected and how runs go; nothing is changed.")

_PORT = 8078
_LARGEST_PORT = 65535

ConsortiumFolder = Annotated[Path, typer.Option("--consortium", help="Folder with consortium.toml and certificates.")]
RunsFolder = Annotated[Path, typer.Option("--runs", help="Folder of the runs.")]
Address = Annotated[str, typer.Option("--superlink", help="host:port of the SuperLink.")]
Authority = Annotated[
    Path | None, typer.Option("--ca", help="Its certificate authority, PEM; default: ca.crt in --consortium.")
]
FlowerHome = Annotated[
    Path | None,
    typer.Option("--flower-home", help="Folder with Flower's config.toml, in place of --superlink and --ca."),
]
Connection = Annotated[str, typer.Option("--connection", help="Name of the connection in --flower-home.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]


@coordinator.callback()
def _group() -> None:
    """See who is connected and how runs go; nothing is changed."""


@coordinator.command("serve")
def serve_command(  # noqa: PLR0913 - one parameter per option
    consortium: ConsortiumFolder,
    runs: RunsFolder,
    superlink: Address = "superlink:8000",
    ca: Authority = None,
    flower_home: FlowerHome = None,
    connection: Connection = "superlink",
    host: Annotated[str, typer.Option(help="Address to listen on; 127.0.0.1: this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=_LARGEST_PORT, help="Port to listen on.")] = _PORT,
    name: Annotated[
        list[str] | None, typer.Option(help="Another name that browsers and monitoring call it by; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve the coordinator's page until told to end. It has no accounts: whoever reaches the port sees it."""
    place = _Place(consortium=consortium, runs=runs, superlink=superlink, ca=ca, home=flower_home, name=connection)
    with exit_codes(as_json=as_json), _open(place) as lookout:
        from deploy.coordinator.page import make_page
        from deploy.web.application import secure, serve

        address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        typer.echo(json.dumps({"status": "serving", "address": address}) if as_json else f"Coordinator: {address}")
        serve(secure(make_page(lookout), names=name or ()), host=host, port=port)


@coordinator.command("show")
def show_command(
    consortium: ConsortiumFolder,
    runs: RunsFolder,
    superlink: Address = "superlink:8000",
    ca: Authority = None,
    flower_home: FlowerHome = None,
    connection: Connection = "superlink",
    run: Annotated[str, typer.Option(help="Name of the run; default: the newest.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show the same as the page. Exit code 1: something needs a hand."""
    place = _Place(consortium=consortium, runs=runs, superlink=superlink, ca=ca, home=flower_home, name=connection)
    with exit_codes(as_json=as_json), _open(place) as lookout:
        from deploy.coordinator.terminal import as_json_text, show
        from deploy.coordinator.watch import find

        overview = lookout.look(run)
        findings = find(overview)
        if as_json:
            typer.echo(as_json_text(overview, findings))
        else:
            show(overview, findings, Console())
    raise typer.Exit(1 if findings else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What there is to look at; `home` and `name` are of a connection that stands in Flower's own configuration."""

    consortium: Path
    runs: Path
    superlink: str
    ca: Path | None
    home: Path | None
    name: str


@contextmanager
def _open(place: _Place) -> Iterator[Lookout]:
    """Give what looks at `place`; the connection that it makes for Flower's command is gone after the block.

    Raises:
        ConfigurationError: a folder is missing, or a library is.
    """
    require_extras("matplotlib")
    if not place.consortium.is_dir():
        raise ConfigurationError(f"Expected --consortium={place.consortium} to be a folder.")
    if place.home is not None and not (place.home / "config.toml").is_file():
        raise ConfigurationError(f"Expected --flower-home={place.home} to hold Flower's config.toml.")
    from deploy.coordinator.overview import Lookout
    from deploy.coordinator.superlink import SuperLink

    with tempfile.TemporaryDirectory(prefix="aegis-flower-") as own:
        if place.home is None:
            Connected(Path(own), place.superlink, place.ca or place.consortium / "ca.crt")
            link = SuperLink(CONNECTION, Path(own), direct=place.superlink.rpartition(":")[0])
        else:
            link = SuperLink(place.name, place.home)
        yield Lookout(place.consortium, place.runs, link.ask)
