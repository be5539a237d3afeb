"""The nodes that a SuperLink lets in, seen and changed through Flower's own commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from deploy.flower_run import flower_environment
from federation.durable import write_durably
from federation.errors import AegisError, ConfigurationError

CONNECTION = "aegis"
_ROOT = Path(__file__).parents[2]
_LIMIT_S = 120.0
_UNREGISTERED = "unregistered"
_LONGEST_REASON = 500


class RegistrationError(AegisError):
    """The SuperLink was not reached, or refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node as the SuperLink knows it.

    Attributes:
        id: Flower's own.
        key: one OpenSSH line without a comment; empty for a node without a key that OpenSSH could write.
        living: whether it is let in; a key that was withdrawn is never taken again.
    """

    id: str
    key: str
    living: bool


class SuperLink:
    """One SuperLink with node authentication, which this machine may administer."""

    def __init__(self, address: str, *, authority: Path, home: Path) -> None:
        """Describe the SuperLink; nothing is asked yet.

        Args:
            address: `host:port` of it.
            authority: the only authority whose certificate it may show.
            home: Flower's home on this machine; the connection `aegis` in its `config.toml` is written.
        """
        self._address, self._authority, self._home = address, authority.absolute(), home.absolute()
        # A proxy that the environment names leads out of the network in which the SuperLink lives.
        direct = ",".join(part for part in (os.environ.get("NO_PROXY", ""), address.rpartition(":")[0]) if part)
        path = os.pathsep.join(part for part in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if part)
        own = {"NO_PROXY": direct, "no_proxy": direct, "PYTHONPATH": path}
        self._environment = flower_environment(self._home) | own

    def write_connection(self) -> None:
        """Write the connection into Flower's `config.toml`; other connections in it are kept.

        Raises:
            ConfigurationError: the file is there and is no TOML.
        """
        path = self._home / "config.toml"
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from None
        connections = {"default": CONNECTION, **content.get("superlink", {})}
        connections[CONNECTION] = {"address": self._address, "root-certificates": str(self._authority)}
        write_durably(path, tomli_w.dumps({**content, "superlink": connections}).encode(), mode=0o600)

    def nodes(self) -> list[Node]:
        """Return every node that was ever registered.

        Raises:
            RegistrationError: the SuperLink was not reached, or refused.
        """
        output = self._run([sys.executable, "-m", "deploy.trust.node_listing", CONNECTION], "tell its nodes")
        return [
            Node(id=item["id"], key=_openssh_line(item["key"]), living=item["status"] != _UNREGISTERED)
            for item in json.loads(output)
        ]

    def register(self, public_key: str, name: str) -> None:
        """Let the node with this key in from now on.

        Raises:
            RegistrationError: the SuperLink was not reached, or refused.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "node.key.pub"
            file.write_text(f"{public_key}\n", encoding="utf-8")
            self._change(["register", str(file), CONNECTION, "--name", name], f"register {name!r}")

    def unregister(self, node_id: str) -> None:
        """Let the node in no more; its key is never taken again.

        Raises:
            RegistrationError: the SuperLink was not reached, or refused.
        """
        self._change(["unregister", node_id, CONNECTION], f"unregister node {node_id}")

    def _change(self, arguments: list[str], purpose: str) -> None:
        """Run a command of Flower's that says in JSON whether it succeeded; its exit status does not."""
        output = self._run(["flwr", "supernode", *arguments, "--format", "json"], purpose)
        try:
            succeeded = json.loads(output)["success"] is True
        except (ValueError, KeyError, TypeError):
            succeeded = False
        if not succeeded:
            raise self._refused(purpose, output)

    def _run(self, command: list[str], purpose: str) -> str:
        try:
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, check=False, timeout=_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            raise self._refused(purpose, f"no answer within {_LIMIT_S:g} s") from None
        if done.returncode:
            raise self._refused(purpose, done.stdout + done.stderr)
        return done.stdout

    def _refused(self, purpose: str, found: str) -> RegistrationError:
        reason = " ".join(found.split())[-_LONGEST_REASON:]
        return RegistrationError(f"Expected the SuperLink at {self._address} to {purpose}, found: {reason}")


def _openssh_line(pem: str) -> str:
    """Return a key in OpenSSH's format; empty for one that it cannot write."""
    try:
        key = serialization.load_pem_public_key(pem.encode())
        return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    except (ValueError, UnsupportedAlgorithm):
        return ""
