"""A `flwr run` simulation that is ours from start to end: own SuperLink, own home, own port, and a true exit status.

`flwr run --stream` exits with 0 even when the run failed, and its background SuperLink outlives it and captures later
runs of other checkouts. Here the SuperLink is a child process that ends with the block, and the status is asked for.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import tomli_w

from federation.config import nest
from federation.errors import RunFailedError

_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}
_START_LIMIT_S = 90.0
_POLL_S = 0.2
_STARTED = re.compile(r"started run (\d+)")


class LocalFlower:
    """A SuperLink for simulations on a free loopback port; use it as a context manager."""

    def __init__(self, home: Path) -> None:
        """Keep all of Flower's files below `home`."""
        self._home = home.absolute()
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = flower_environment(self._home)

    def __enter__(self) -> Self:
        """Start the SuperLink and wait until it answers.

        Raises:
            RunFailedError: it does not, with the place of its log.
        """
        self._home.mkdir(parents=True, exist_ok=True)
        connection = {"default": "aegis", "aegis": {"address": f"127.0.0.1:{self._port}", "insecure": True}}
        (self._home / "config.toml").write_text(tomli_w.dumps({"superlink": connection}), encoding="utf-8")
        command = ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(self._port)]
        with (self._home / "superlink.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        healthy = False
        try:
            healthy = self._is_healthy_in_time(self._process)
        finally:
            if not healthy:
                end_tree(self._process.pid)
        if not healthy:
            raise RunFailedError(f"Flower's SuperLink did not start; its log: {self._home / 'superlink.log'}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the SuperLink and every process it started."""
        if self._process is not None:
            end_tree(self._process.pid)
            self._process.wait()

    def run(
        self,
        app: Path,
        run_config: Mapping[str, Any],
        *,
        hospitals: int,
        actors: int,
        on_line: Callable[[str], None],
    ) -> None:
        """Run the Flower app at `app` to its end.

        Args:
            app: folder with the `pyproject.toml` of the app.
            run_config: dotted keys and scalars that override the app's own configuration.
            hospitals: number of simulated nodes.
            actors: hospitals that compute at the same time, one CPU each.
            on_line: called with every line of the run's output.

        Raises:
            RunFailedError: Flower refused the run, or it did not end as completed.
        """
        override = self._home / "run-config.toml"
        override.write_text(tomli_w.dumps(nest(run_config)), encoding="utf-8")
        federation = f"num-supernodes={hospitals} client-resources-num-cpus=1 init-args-num-cpus={actors}"
        command = ["flwr", "run", str(app.absolute()), "aegis", "--stream", "--federation-config", federation]
        with subprocess.Popen(
            [*command, "--run-config", str(override)],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            run_id = ""
            for line in process.stdout or ():
                run_id = found[1] if (found := _STARTED.search(line)) else run_id
                on_line(line.rstrip("\n"))
        if process.returncode:
            raise RunFailedError(f"flwr run refused the run (exit status {process.returncode}); see the lines above.")
        self._require_completed(run_id)

    def _require_completed(self, run_id: str) -> None:
        """Ask how the run ended."""
        listing = subprocess.run(
            ["flwr", "list", "aegis", "--run-id", run_id, "--format", "json"],  # noqa: S607 - found on the PATH of this environment
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            run = json.loads(listing.stdout)["runs"][0]
        except (ValueError, KeyError, IndexError) as error:
            raise RunFailedError(f"The status of the run is unknown: {listing.stdout or listing.stderr}") from error
        if run["status"] != "finished:completed":
            raise RunFailedError(f"Expected the run to end as finished:completed, found {run['status']}.")

    def _is_healthy_in_time(self, process: subprocess.Popen[bytes]) -> bool:
        end = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < end and process.poll() is None:
            if answers(f"http://127.0.0.1:{self._port}/health"):
                return True
            time.sleep(_POLL_S)
        return False


def flower_environment(home: Path) -> dict[str, str]:
    """Return this process's environment, in which Flower's commands are found, stay offline and keep to `home`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **_OFFLINE, "FLWR_HOME": str(home), "PATH": path}


def free_port() -> int:
    """Return a loopback port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Return whether `url` answers with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - loopback
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def end_tree(pid: int) -> None:
    """Terminate a process and its descendants, then kill what is left."""
    try:
        root = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return
    family = [*root.children(recursive=True), root]
    for process in family:
        _signal(process.terminate)
    _, alive = psutil.wait_procs(family, timeout=10)
    for process in alive:
        _signal(process.kill)


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.NoSuchProcess:
        return
