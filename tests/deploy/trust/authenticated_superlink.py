"""A real SuperLink on loopback with TLS and node authentication, from a consortium that the shipped code founded."""

from __future__ import annotations

import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.flower_run import end_tree, flower_environment, free_port
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.superlink import SuperLink
from tests.e2e.waiting import wait_until

_ISOLATED = ("--isolation", "process", "--superexec-auth-secret-file")


class AuthenticatedSuperLink:
    """Use it as a context manager; every process it started is ended with the block."""

    def __init__(self, consortium: ConsortiumFolder, folder: Path) -> None:
        self._consortium, self._folder = consortium, folder
        self._port = free_port()
        self._environment = flower_environment(folder / "home") | {"HOME": str(folder), "OMP_NUM_THREADS": "1"}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        (self._folder / "home").mkdir(parents=True)
        internal = self._consortium.internal
        own = ["--ssl-certfile", str(internal), "--ssl-keyfile", str(internal.with_suffix(".key"))]
        tls = ["--ssl-ca-certfile", str(self._consortium.authority), *own, "--enable-supernode-auth"]
        place = ["--host", "127.0.0.1", "--port", str(self._port), "--database", str(self._folder / "state.db")]
        try:
            self._start(
                ["flower-superlink", *place, *tls, *_ISOLATED, str(self._consortium.executor_secret)], "superlink"
            )
            wait_until(self._is_healthy, "a healthy SuperLink")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def administration(self) -> SuperLink:
        """Return the SuperLink as `aegis enrol register` sees it."""
        link = SuperLink(self.address, authority=self._consortium.authority, home=self._folder / "home")
        link.write_connection()
        return link

    def start_node(self, key: Path, name: str) -> subprocess.Popen[bytes]:
        """Start a SuperNode with the private key in the file `key`."""
        trust = ["--root-certificates", str(self._consortium.authority), "--auth-supernode-private-key", str(key)]
        place = ["--superlink", self.address, "--host", "127.0.0.1", "--port", str(free_port())]
        secret = str(self._consortium.executor_secret)
        return self._start(["flower-supernode", *trust, *place, *_ISOLATED, secret], name)

    def log_of(self, name: str) -> str:
        """Return what the process of that name has said."""
        return (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def _start(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._processes.append(process)
        return process

    def _is_healthy(self) -> bool:
        context = ssl.create_default_context(cafile=str(self._consortium.authority))
        try:
            with urllib.request.urlopen(f"https://{self.address}/health", timeout=2, context=context) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _end(self) -> None:
        for process in self._processes:
            end_tree(process.pid)
            process.wait()
