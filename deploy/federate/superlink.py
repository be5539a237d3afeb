"""The coordinator's SuperLink, as Flower's own command line reaches it from inside the server's network."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from deploy.flower_run import flower_environment
from federation.config import nest
from federation.errors import RunFailedError

CONNECTION = "aegis"
_STARTED = re.compile(r"started run (\d+)")
_LIMIT_S = 120.0
_FINISHED = "finished:"
_UNKNOWN = "finished:unknown"
"""Of a run that the SuperLink does not know: its database is another one than before."""


class SuperLink:
    """A SuperLink under TLS of the consortium's authority."""

    def __init__(self, home: Path, address: str, authority: Path) -> None:
        """Write the connection into `home`, which becomes Flower's own folder.

        Args:
            home: a folder of this process alone; it is made where it is missing.
            address: `host:port` of the SuperLink.
            authority: PEM file of the consortium's certificate authority.
        """
        self.home, self.address = home, address
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = {"address": address, "root-certificates": str(authority.absolute())}
        text = tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: connection}})
        (home / "config.toml").write_text(text, encoding="utf-8")

    def submit(self, app: Path, run_config: Mapping[str, Any]) -> str:
        """Submit a run of the app at `app` and return its id.

        Raises:
            RunFailedError: the SuperLink cannot be reached, or refused it.
        """
        with tempfile.NamedTemporaryFile("w", suffix=".toml", dir=self.home, encoding="utf-8") as override:
            override.write(tomli_w.dumps(nest(run_config)))
            override.flush()
            output = self.flwr("run", str(app), CONNECTION, "--run-config", override.name)
        if found := _STARTED.search(output):
            return found[1]
        raise RunFailedError(f"Expected the SuperLink to start a run, found: {output.strip()[-500:]}")

    def status(self, run_id: str) -> str | None:
        """Return the status of a run, such as `running`; None while the SuperLink does not tell."""
        runs = self._list("--run-id", run_id)
        if runs is None:
            return None
        return str(runs[0]["status"]) if runs else _UNKNOWN

    def unfinished(self) -> str | None:
        """Return the id of the newest run that has not finished; None where there is none.

        Raises:
            RunFailedError: the SuperLink does not tell.
        """
        listed = self._list()
        if listed is None:
            raise RunFailedError(f"Expected the SuperLink at {self.address} to list its runs, found no answer.")
        runs = [run for run in listed if not str(run["status"]).startswith(_FINISHED)]
        return str(runs[0]["run-id"]) if runs else None

    def nodes(self) -> list[dict[str, Any]] | None:
        """Return what the SuperLink says of every registered hospital; None while it does not tell."""
        return self._read("nodes", "supernode", "list", CONNECTION, "--format", "json")

    def flwr(self, *arguments: str) -> str:
        """Return what a `flwr` command prints.

        Raises:
            RunFailedError: it took two minutes.
        """
        try:
            done = subprocess.run(
                ["flwr", *arguments],  # noqa: S607 - found on the PATH of this environment
                env=flower_environment(self.home),
                capture_output=True,
                text=True,
                check=False,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise RunFailedError(f"Expected an answer of {self.address} within {_LIMIT_S:g} s, found none.") from None
        return done.stdout + ("" if done.returncode == 0 else done.stderr)

    def _list(self, *arguments: str) -> list[dict[str, Any]] | None:
        return self._read("runs", "list", CONNECTION, *arguments, "--format", "json")

    def _read(self, key: str, *arguments: str) -> list[dict[str, Any]] | None:
        """Return the list under `key` in the JSON that a `flwr` command prints; None where it prints none."""
        try:
            found = json.loads(self.flwr(*arguments))[key]
        except (ValueError, KeyError, TypeError, RunFailedError):
            return None
        return found if isinstance(found, list) else None
