"""A federation of real Flower processes on loopback: one SuperLink, a SuperNode per hospital, and means to kill them.

Every process carries the deployment's own FLWR_HOME in its environment; that is how all of them are found at the end,
those too whose parent was killed. Hospitals run `tests.e2e.gated_hospital`, so that a test can hold one in mid-task.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import tomli_w

from deploy.experiments.engines import copy_app
from deploy.flower_run import answers, end_tree, flower_environment, free_port
from federation.config import nest
from tests.e2e.followed_run import FollowedRun
from tests.e2e.hospital_files import HospitalFiles
from tests.e2e.waiting import wait_until

ROOT = Path(__file__).parents[2]
HOSPITAL, SERVER = "tests.e2e.gated_hospital:app", "server_app.main:app"
_STARTED = re.compile(r"started run (\d+)")
_ENVIRONMENT = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}


class Deployment:
    """A SuperLink with a database and SuperNodes with policies, on free loopback ports; use it as a context manager."""

    def __init__(self, folder: Path, hospitals: Sequence[str]) -> None:
        self.folder = folder
        self.hospitals = {name: HospitalFiles(folder / "hospitals" / name, name) for name in hospitals}
        self._home, self._logs = folder / "home", folder / "logs"
        self._port = free_port()
        self._environment = flower_environment(self._home) | _ENVIRONMENT | {"HOME": str(folder)}
        self._superlink: subprocess.Popen[bytes] | None = None
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True)
        self._logs.mkdir()
        connection = {"default": "aegis", "aegis": {"address": f"127.0.0.1:{self._port}", "insecure": True}}
        (self._home / "config.toml").write_text(tomli_w.dumps({"superlink": connection}), encoding="utf-8")
        try:
            self.start_superlink()
            self.restore()
        except BaseException:
            self._end_everything()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_everything()

    def restore(self) -> None:
        """Bring everything back that a test has killed, held or changed, and end the runs that it left."""
        for hospital in self.hospitals.values():
            hospital.open_gates()
            hospital.adopt_policy()
        for server in self.servers():
            end_tree(server.pid)
        if self._superlink is None or self._superlink.poll() is not None:
            self.start_superlink()
        for name in self.hospitals:
            if name not in self._nodes or self._nodes[name].poll() is not None:
                self.start_node(name)

    def start_superlink(self) -> None:
        """Start the SuperLink on the database of this deployment and wait until it answers."""
        command = ["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self._port)]
        self._superlink = self._spawn([*command, "--database", str(self._home / "state.db")], "superlink")
        wait_until(lambda: answers(f"http://127.0.0.1:{self._port}/health"), "a healthy SuperLink")

    def kill_superlink(self) -> None:
        """SIGKILL the SuperLink, and wait until its SuperExec and ServerApp have noticed and ended themselves."""
        assert self._superlink is not None
        self._superlink.kill()
        self._superlink.wait()
        wait_until(lambda: not self._below("superlink"), "the end of what the SuperLink had started")

    def start_node(self, name: str) -> None:
        """Start the SuperNode of a hospital; it registers as a new node."""
        command = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self._port}", "--host", "127.0.0.1"]
        own = ["--port", str(free_port()), "--node-config", self.hospitals[name].node_config]
        self._nodes[name] = self._spawn([*command, *own], name)

    def kill_node(self, name: str) -> None:
        """SIGKILL the SuperNode of a hospital, and wait until its ClientApp has noticed and ended itself."""
        self._nodes[name].kill()
        self._nodes[name].wait()
        wait_until(lambda: not self._below(name), f"the end of what the SuperNode of {name} had started")

    def stop_node(self, name: str) -> None:
        """SIGTERM the SuperNode of a hospital, which says goodbye to the SuperLink."""
        self._nodes[name].send_signal(signal.SIGTERM)
        self._nodes[name].wait(timeout=30)
        wait_until(lambda: not self._below(name), f"the end of what the SuperNode of {name} had started")

    def submit(self, name: str, settings: Mapping[str, Any], *, server: str = SERVER) -> FollowedRun:
        """Submit a run of all hospitals with tiny models and without evaluation, changed by `settings`."""
        usual = {
            "data.name": "npz",
            "model.name": "mlp",
            "model.hidden-units": 2,
            "run.name": name,
            "run.root": str(self.folder / "runs"),
            "run.hospitals": len(self.hospitals),
            "run.central-evaluation": False,
            "run.hospital-evaluation": False,
        }
        run = FollowedRun(self, self.folder / "runs" / name, resumed=bool(settings.get("run.resume")))
        override = self._home / f"{name}.toml"
        override.write_text(tomli_w.dumps(nest({**usual, **settings})), encoding="utf-8")
        output = self.flwr("run", str(self._app(server)), "aegis", "--run-config", str(override))
        found = _STARTED.search(output)
        assert found, output
        run.run_id = found[1]
        return run

    def servers(self) -> list[psutil.Process]:
        """Return the ServerApp processes."""
        return [
            process
            for process in self._below("superlink")
            if any("flwr-serverapp" in part for part in process.cmdline())
        ]

    def kill_server(self) -> None:
        """SIGKILL the one ServerApp process."""
        (server,) = self.servers()
        server.kill()
        psutil.wait_procs([server], timeout=10)

    def flwr(self, *arguments: str) -> str:
        """Return what a `flwr` command prints; it must succeed."""
        done = subprocess.run(
            ["flwr", *arguments], env=self._environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _app(self, server: str) -> Path:
        """Return the folder of our app with gated hospitals and the ServerApp `server`."""
        folder = self.folder / "apps" / server.split(":", maxsplit=1)[0].rpartition(".")[2].replace("_", "-")
        if not folder.exists():
            copy_app(ROOT, folder, {"clientapp": HOSPITAL, "serverapp": server})
        return folder

    def _spawn(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        environment = {**self._environment, "AEGIS_BELOW": log}
        with (self._logs / f"{log}.log").open("ab") as file:
            return subprocess.Popen(
                command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _below(self, log: str | None = None) -> list[psutil.Process]:
        """Return the living processes of this deployment, or those of the SuperLink or of one SuperNode."""
        found = []
        for process in psutil.process_iter():
            try:
                environment = process.environ() if process.status() != psutil.STATUS_ZOMBIE else {}
            except (psutil.AccessDenied, psutil.NoSuchProcess):
                continue
            if environment.get("FLWR_HOME") == str(self._home) and environment.get("AEGIS_BELOW") in (
                log,
                log or environment.get("AEGIS_BELOW"),
            ):
                found.append(process)
        return found

    def _end_everything(self) -> None:
        for process in self._below():
            end_tree(process.pid)
        for child in [*self._nodes.values(), *([self._superlink] if self._superlink else [])]:
            child.wait()
