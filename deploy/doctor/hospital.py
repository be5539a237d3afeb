"""The hospital that the checks look at: its kit, its policy, its machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from client_app.policy import SitePolicy, read_policy
from deploy.doctor.machine import Machine
from deploy.doctor.wire import Proxy, Route
from deploy.node.state import NodeState, read_state
from deploy.trust.kit import Kit

FRESH_S = 60.0
"""A node's state that is older says nothing about now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hospital:
    """Where everything is. Files are read anew whenever they are asked for.

    Attributes:
        kit_folder: with `kit.toml` and what it names.
        policy_path: the site policy.
        page_port: of the status page.
        runtime_port: of Flower's own API, on the loopback interface.
        machine: what the machine says of itself.
    """

    kit_folder: Path
    policy_path: Path
    page_port: int = 8077
    runtime_port: int = 9094
    machine: Machine = field(default_factory=Machine)

    def kit(self) -> Kit:
        """Return the kit.

        Raises:
            ConfigurationError: it cannot be used.
        """
        return Kit.read(self.kit_folder)

    def policy(self) -> SitePolicy:
        """Return the site policy.

        Raises:
            SiteError: it cannot be used.
        """
        return read_policy(self.policy_path)

    @property
    def authority(self) -> Path:
        """File of the consortium's certificate authority."""
        return self.kit_folder / self.kit().ca

    @property
    def key(self) -> Path:
        """File of the hospital's private key."""
        return self.kit_folder / self.kit().key

    def volumes(self) -> dict[str, Path]:
        """Return the two volumes by the keys of the policy that name them."""
        policy = self.policy()
        return {"state-dir": Path(policy.state_dir), "keys-dir": Path(policy.keys_dir)}

    @property
    def unused_proxy(self) -> str:
        """The variable of the environment that names a proxy, which the node does not use; empty for none."""
        names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
        return next((name for name in names if self.machine.environment.get(name)), "")

    def route(self) -> Route:
        """Return the way to the server, which is the node's own: through the kit's proxy and no other.

        Raises:
            ConfigurationError: the proxy's URL cannot be used.
        """
        kit = self.kit()
        return Route(host=kit.host, port=kit.port, proxy=Proxy.parse(kit.proxy) if kit.proxy else None)

    def node_state(self) -> NodeState | None:
        """Return what the hospital's supervisor last wrote; None where it never did.

        Raises:
            DataError: the file is damaged.
        """
        return read_state(Path(self.policy().state_dir))

    def fresh_node_state(self) -> NodeState | None:
        """Return what the supervisor wrote within the last minute; None where it did not."""
        state = self.node_state()
        return state if state is not None and abs(self.machine.now() - state.written) < FRESH_S else None
