"""`aegis node run`: what a hospital's container does for as long as it is up."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from client_app.policy import read_policy
from client_app.site import default_state_dir
from deploy.node.processes import Child, Kept, ProcessLog
from deploy.node.settings import POLICY, NodeSettings, versions
from deploy.node.state import NodeState, Phase, write_state
from deploy.node.supervisor import Supervisor, report
from federation.errors import ConfigurationError, SiteError

node = typer.Typer(no_args_is_help=True, help="Run this hospital's node.")

_RETRY_S = 10.0
_PAGE_PORT = 8077
_FLOWER_PORT = 9094


@node.callback()
def _group() -> None:
    """Run this hospital's node."""


@node.command("run")
def run_command(
    kit: Annotated[Path, typer.Option(help="Folder of the kit.")] = Path("/etc/aegis"),
    policy: Annotated[Path | None, typer.Option(help="The site.toml; by default the one in the kit's folder.")] = None,
    page_host: Annotated[str, typer.Option(help="Address of the status page; empty for no page.")] = "127.0.0.1",
    page_port: Annotated[int, typer.Option(help="Port of the status page.")] = _PAGE_PORT,
    flower_port: Annotated[int, typer.Option(help="Port of Flower's Runtime API on 127.0.0.1.")] = _FLOWER_PORT,
    scratch: Annotated[Path | None, typer.Option(help="Folder for files that need not survive.")] = None,
) -> None:
    """Keep this hospital connected until SIGTERM: SuperNode, watchdog and status page.

    A kit or policy that cannot be used is said on the page and in the log, and read again every ten seconds.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    policy_path = policy or kit / POLICY
    folder = scratch or Path(tempfile.mkdtemp(prefix="aegis-node-"))
    start = partial(_start_page, kit, policy_path, folder, page_host, page_port)
    page = Kept(start) if page_host else None
    try:
        settings = _await_settings(kit, policy_path, stop, scratch=folder, port=flower_port)
        if settings is not None:
            Supervisor(settings).run(stop, page)
    finally:
        if page is not None:
            page.stop()


def _await_settings(kit: Path, policy: Path, stop: threading.Event, *, scratch: Path, port: int) -> NodeSettings | None:
    """Return the settings once they can be used; None where the node was stopped before."""
    started, told = time.time(), ""
    while not stop.is_set():
        try:
            return NodeSettings.read(kit, policy, scratch=scratch, port=port)
        except (ConfigurationError, SiteError) as error:
            if str(error) != told:
                told = str(error)
                report("misconfigured", detail=told)
            _tell_misconfigured(told, started, policy)
        stop.wait(_RETRY_S)
    return None


def _tell_misconfigured(detail: str, started: float, policy: Path) -> None:
    state = NodeState(
        written=time.time(),
        phase=Phase.MISCONFIGURED,
        since=started,
        detail=detail,
        versions=versions(),
        started=started,
    )
    try:
        write_state(_state_dir(policy), state)
    except OSError as error:
        report("state-not-written", errno=error.errno)


def _state_dir(policy: Path) -> Path:
    """Return where the page looks for the node's state: the policy may be sound where the kit is not."""
    try:
        return Path(read_policy(policy).state_dir)
    except SiteError:
        return default_state_dir()


def _start_page(kit: Path, policy: Path, scratch: Path, host: str, port: int) -> Child:
    command = [
        *(sys.executable, "-m", "deploy.cli", "status", "serve"),
        *("--policy", str(policy), "--kit", str(kit)),
        *("--host", host, "--port", str(port)),
    ]
    return Child("page", command, os.environ, ProcessLog(scratch / "page.log"))
