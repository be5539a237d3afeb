"""What a node is started with: the kit, the policy, and the command lines that follow from them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from client_app.policy import SitePolicy, read_policy
from deploy.flower_run import flower_environment
from deploy.node.route import PROXY_VARIABLES, proxies
from deploy.trust.kit import Kit
from federation.errors import ConfigurationError

POLICY = "site.toml"
_IMAGE = "AEGIS_IMAGE"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Everything that does not change while a node runs.

    Attributes:
        kit: from the coordinator.
        policy: the hospital's own.
        folder: of the kit.
        policy_path: of the policy; absolute.
        scratch: folder of files that need not survive, in memory where there is such a volume.
        port: of Flower's Runtime API, on the loopback interface only.
    """

    kit: Kit
    policy: SitePolicy
    folder: Path
    policy_path: Path
    scratch: Path
    port: int

    @classmethod
    def read(cls, folder: Path, policy_path: Path, *, scratch: Path, port: int) -> Self:
        """Return the settings that kit and policy give.

        Raises:
            ConfigurationError: the kit cannot be used, or it is another hospital's than the policy.
            SiteError: the policy cannot be used.
        """
        kit, policy = Kit.read(folder), read_policy(policy_path)
        if kit.hospital_id != policy.hospital_id:
            raise ConfigurationError(
                f"Expected hospital-id = {kit.hospital_id!r} in {policy_path}, as in the kit, found "
                f"{policy.hospital_id!r}."
            )
        return cls(
            kit=kit, policy=policy, folder=folder, policy_path=policy_path.absolute(), scratch=scratch, port=port
        )

    @property
    def state_dir(self) -> Path:
        """The hospital's state volume."""
        return Path(self.policy.state_dir)

    @property
    def contact_file(self) -> Path:
        """Where the SuperNode notes the server's answers."""
        return self.scratch / "contact.json"

    @property
    def secret_file(self) -> Path:
        """Where the secret lies by which the SuperNode knows its own SuperExec."""
        return self.scratch / "superexec.secret"

    def supernode_command(self) -> list[str]:
        """Return the command of the SuperNode."""
        return [
            *(sys.executable, "-m", "deploy.node.supernode", str(self.contact_file)),
            *("--superlink", self.kit.server, "--root-certificates", str(self.folder / self.kit.ca)),
            *("--auth-supernode-private-key", str(self.folder / self.kit.key)),
            *("--isolation", "process", "--superexec-auth-secret-file", str(self.secret_file)),
            *("--host", _LOOPBACK, "--port", str(self.port)),
            *("--node-config", f'site-policy="{self.policy_path}"'),
        ]

    def superexec_command(self) -> list[str]:
        """Return the command of the SuperExec beside it."""
        return [
            *(sys.executable, "-m", "deploy.node.superexec", "--insecure"),
            *("--runtime-api-address", f"{_LOOPBACK}:{self.port}"),
            *("--superexec-auth-secret-file", str(self.secret_file)),
        ]

    def environment(self) -> Mapping[str, str]:
        """Return the environment of both: offline but for the server, at home in the scratch folder.

        Of proxies it names the kit's and no other: one that Docker hands to every container would be put between the
        SuperExec and the SuperNode, too, and is none that `route` has tried.
        """
        inherited = flower_environment(self.scratch / "flower")
        own = {name: value for name, value in inherited.items() if name.upper() not in PROXY_VARIABLES}
        return {**own, **proxies(self.kit), "PYTHONUNBUFFERED": "1"}


def versions() -> dict[str, str]:
    """Return what runs here, for whoever looks for a difference between two hospitals."""
    installed = {
        name: importlib.metadata.version(package)
        for name, package in (("aegis", "aegis-fl"), ("flwr", "flwr"), ("torch", "torch"))
    }
    image = os.environ.get(_IMAGE, "")
    return {**installed, "python": platform.python_version(), **({"image": image} if image else {})}
