"""A consortium of real containers on this machine: enrolled, built, started, spoken to, and taken down again.

What the experiment on deployment and the tests of the compose files stand on. Everything that it makes carries the name
of one compose project, so that what is ended was started here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from deploy.experiments.deployment_images import HOSPITAL_IMAGE, IMAGES
from deploy.flower_run import free_port
from federation.errors import RunFailedError

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
HOSPITALS = ("hospital-a", "hospital-b", "hospital-c")
HOST = "federation.example"
OWNER = 10001
_POLL_S = 1.0


def has_engine() -> bool:
    """Return whether a container engine answers on this machine."""
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "info"], capture_output=True, check=False)  # noqa: S607 - the user's own engine
    return done.returncode == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A consortium below one folder.

    Attributes:
        folder: holds the consortium, the hospitals' images, the run's settings and what overrides the compose file.
        project: name of the compose project.
        ports: published on 127.0.0.1: "edge" and "page".
        extra: further compose files, by which a test changes single services.
        settings: further variables of the compose files.
    """

    folder: Path
    project: str = field(default_factory=lambda: f"aegis-{uuid.uuid4().hex[:8]}")
    ports: Mapping[str, int] = field(default_factory=lambda: {"edge": free_port(), "page": free_port()})
    extra: list[Path] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def consortium(self) -> Path:
        """The coordinator's folder."""
        return self.folder / "consortium"

    def kit(self, hospital: str) -> Path:
        """Return the folder of a hospital's kit, which its container sees as /etc/aegis."""
        return self.consortium / "kits" / hospital

    def enrol(self) -> None:
        """Found the consortium and enrol the hospitals; afterwards every file is the containers'."""
        where = ("--folder", str(self.consortium))
        self.aegis("enrol", "init", "demo", "--host", HOST, "--san", "localhost", "--san", "127.0.0.1", *where)
        for hospital in HOSPITALS:
            self.aegis("enrol", "hospital", hospital, *where)
        self.hand_over()

    def hand_over(self) -> None:
        """Give every file of the consortium to the user that containers run as."""
        for path in (self.consortium, *self.consortium.rglob("*")):
            os.chown(path, OWNER, OWNER, follow_symlinks=False)

    def write_policy(self, hospital: str, policy: Mapping[str, Any]) -> None:
        """Replace a hospital's site policy."""
        path = self.kit(hospital) / "site.toml"
        path.write_text(tomli_w.dumps(policy), encoding="utf-8")
        os.chown(path, OWNER, OWNER)

    def write_run(self, tables: Mapping[str, Any]) -> None:
        """Write the settings of the run that the service `federation` keeps."""
        (self.folder / "run.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")

    def override(self, name: str, services: Mapping[str, Any], **more: Any) -> None:
        """Change services of the compose file from now on."""
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({"services": services, **more}), encoding="utf-8")
        if path not in self.extra:
            self.extra.append(path)

    def aegis(self, *arguments: str) -> str:
        """Return what an `aegis` command of this installation prints."""
        return run([sys.executable, "-m", "deploy.cli", *arguments])

    def compose(self, *arguments: str, limit_s: float = 600.0) -> str:
        """Return what `docker compose` prints for this project."""
        files = [part for path in (COMPOSE, *self.extra) for part in ("-f", str(path))]
        command = ["docker", "compose", "-p", self.project, *files, *arguments]
        return run(command, limit_s=limit_s, environment=self._environment())

    def execute(self, service: str, *command: str, limit_s: float = 120.0) -> str:
        """Return what a command prints in the running container of a service."""
        return self.compose("exec", "-T", service, *command, limit_s=limit_s)

    def name(self, service: str) -> str:
        """Return the name of the container of a service."""
        return f"{self.project}-{service}-1"

    def container(self, service: str) -> str:
        """Return the id of the container of a service, running or not; empty where there is none."""
        return self.compose("ps", "-a", "-q", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what the engine says of the container of a service."""
        found: dict[str, Any] = json.loads(docker("inspect", self.container(service)))[0]
        return found

    def is_healthy(self, service: str) -> bool:
        """Return whether the container of a service runs and its health check is content."""
        if not self.container(service):
            return False
        state = self.inspect(service)["State"]
        return bool(state["Running"]) and state.get("Health", {}).get("Status", "healthy") == "healthy"

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of the run; None before there is one."""
        try:
            text = docker("exec", self.name("coordinator"), "sh", "-c", "cat /runs/*/summary.json")
            found: dict[str, Any] = json.loads(text)
        except (RunFailedError, ValueError):
            return None
        return found

    def node_state(self, hospital: str) -> dict[str, Any]:
        """Return what the supervisor of a hospital says of its node."""
        try:
            text = docker("exec", self.name(hospital), "cat", "/var/lib/aegis/node/state.json")
            found: dict[str, Any] = json.loads(text)
        except (RunFailedError, ValueError):
            return {}
        return found

    def processes(self, service: str, part: str) -> list[int]:
        """Return the processes of a container with `part` in their command line, as this machine numbers them."""
        lines = docker("top", self.container(service), "-eo", "pid,args").splitlines()[1:]
        return [int(line.split()[0]) for line in lines if part in line]

    def network(self, name: str) -> str:
        """Return the engine's name of a network of the compose file."""
        return f"{self.project}_{name}"

    def take_down(self) -> None:
        """End every container of the project and delete its volumes and networks."""
        self.compose("--profile", "run", "down", "--volumes", "--remove-orphans", "--timeout", "5")

    def _environment(self) -> dict[str, str]:
        shares = {f"AEGIS_DATA_{name[-1].upper()}": str(self.folder / "data" / name) for name in HOSPITALS}
        return {
            **os.environ,
            "AEGIS_CONSORTIUM": str(self.consortium),
            "AEGIS_RUN": str(self.folder / "run.toml"),
            "AEGIS_HOST": HOST,
            "AEGIS_EDGE": f"127.0.0.1:{self.ports['edge']}",
            "AEGIS_COORDINATOR_PAGE": f"127.0.0.1:{self.ports['page']}",
            **IMAGES,
            "AEGIS_HOSPITAL_IMAGE": HOSPITAL_IMAGE,
            **shares,
            **self.settings,
        }


def docker(*arguments: str, limit_s: float = 120.0) -> str:
    """Return what a `docker` command prints."""
    return run(["docker", *arguments], limit_s=limit_s)


def run(
    command: list[str], *, limit_s: float = 600.0, environment: Mapping[str, str] | None = None, given: str = ""
) -> str:
    """Return what a command prints on its standard output.

    Raises:
        RunFailedError: it ended with another status than 0, or did not end in time.
    """
    done = attempt(command, limit_s=limit_s, environment=environment, given=given)
    if done.returncode:
        shown, said = " ".join(command), (done.stdout + done.stderr)[-2000:]
        raise RunFailedError(f"`{shown}` ended with {done.returncode}: {said}")
    return done.stdout


def attempt(
    command: list[str], *, limit_s: float = 600.0, environment: Mapping[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Return how a command ended and what it printed, whatever its status.

    Raises:
        RunFailedError: it did not end in time.
    """
    try:
        return subprocess.run(
            command,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise RunFailedError(f"Expected `{' '.join(command)}` to end within {limit_s:g} s.") from None


def wait_until(
    fact: Callable[[], bool], what: str, *, limit_s: float = 300.0, watch: Iterable[Callable[[], str]] = ()
) -> float:
    """Wait until `fact` is so, and return the seconds that took.

    Raises:
        RunFailedError: it did not become so in time; its text has what the functions in `watch` say.
    """
    started = time.monotonic()
    while not fact():
        if time.monotonic() - started > limit_s:
            seen = "\n".join(look() for look in watch)
            raise RunFailedError(f"Expected {what} within {limit_s:g} s. {seen}")
        time.sleep(_POLL_S)
    return time.monotonic() - started
