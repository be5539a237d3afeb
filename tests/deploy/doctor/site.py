"""A hospital in a folder, in perfect health, with a consortium's server beside it; faults are seeded into it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from cryptography.hazmat.primitives.asymmetric import ec
from PIL import Image

from client_app.ledger import Ledger
from deploy.doctor.catalogue import HOSPITAL_CHECKS
from deploy.doctor.checks import Result, Status, carry_out
from deploy.doctor.hospital import Hospital
from deploy.doctor.machine import Machine
from deploy.node.state import NodeState, Phase, write_state
from tests.client_app.ledger.place import request
from tests.client_app.masking.made_up_caches import make_cache
from tests.deploy.doctor.made_up_certificates import issue, make_authority, openssh_private, openssh_public, pem_public
from tests.deploy.doctor.made_up_server import MadeUpProxy, MadeUpServer, serving

GIB = 2**30
HOSPITAL_ID = "north"
USER = 10001
_IMAGES_PER_CLASS = 20


class Site:
    """One hospital; whatever is public may be spoilt, then `examine` looks.

    Attributes:
        root: everything lies below it.
        kit: content of kit.toml, written when one looks.
        policy: content of site.toml, likewise.
        authority: the consortium's.
        key: the hospital's.
        server: the consortium's.
        machine: what the machine says of itself.
        page_port: of the status page.
    """

    def __init__(self, root: Path, opened: ExitStack) -> None:
        self.root = root
        self._opened = opened
        for name in ("kit", "data", "home", "devices"):
            (root / name).mkdir()
        for folder in (self.state, self.keys):
            folder.mkdir(mode=0o700)
        self.authority = make_authority()
        self.server = MadeUpServer(root, issue(self.authority, "localhost"))
        opened.enter_context(serving(self.server))
        self.key = ec.generate_private_key(ec.SECP384R1())
        self.server.known_keys.add(pem_public(self.key))
        self.kit: dict[str, Any] = {
            "format": 1,
            "consortium": "Four clinics",
            "hospital-id": HOSPITAL_ID,
            "host": "localhost",
            "port": self.server.port,
            "public-key": openssh_public(self.key),
        }
        self.policy: dict[str, Any] = {
            "hospital-id": HOSPITAL_ID,
            "state-dir": str(self.state),
            "keys-dir": str(self.keys),
            "data": {"id": "scans", "name": "folder", "root": str(self.data)},
            "privacy": {"mechanisms": ["update-gaussian"], "max-epsilon": 8.0, "max-delta": 1e-5},
            "models": {"allowed": ["cnn"]},
            "training": {"min-examples": 10},
            "masking": {"cache": str(self.cache)},
        }
        self.machine = self._healthy_machine()
        self.page_port = free_port()
        self.write_authority()
        self.write_key(self.key)
        self._make_images()
        make_cache(self.cache, images=6, hospital_id=HOSPITAL_ID)
        self.release("m1", "m2")
        self.write_node_state()

    @property
    def kit_folder(self) -> Path:
        return self.root / "kit"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def ledger(self) -> Path:
        return self.state / f"{HOSPITAL_ID}.ledger"

    def images(self) -> list[Path]:
        """All images, sorted."""
        return sorted(self.data.rglob("*.png"))

    def write_authority(self) -> None:
        """Write ca.crt of the kit."""
        self.authority.write(self.root / "authority.crt")
        (self.kit_folder / "ca.crt").write_bytes((self.root / "authority.crt").read_bytes())

    def write_key(self, key: ec.EllipticCurvePrivateKey) -> None:
        """Write node.key of the kit."""
        path = self.kit_folder / "node.key"
        path.write_bytes(openssh_private(key))
        path.chmod(0o600)

    def release(self, *messages: str) -> None:
        """Let updates leave, as far as the ledger is concerned."""
        with Ledger.open(self.state, hospital_id=HOSPITAL_ID, key_folder=self.keys) as ledger:
            for message in messages:
                ledger.commit(ledger.reserve(request(message)))

    def write_node_state(self, **changes: Any) -> None:
        """Write what the supervisor of a connected node would."""
        now = time.time()
        state = NodeState(written=now, phase=Phase.CONNECTED, since=now - 60, started=now - 90)
        write_state(self.state, state.model_copy(update=changes))

    def stop_node(self) -> None:
        """Take away what the supervisor wrote."""
        (self.state / "node" / "state.json").unlink()

    def add_proxy(self, status: int = 200) -> MadeUpProxy:
        """Put a proxy on the way out."""
        proxy = MadeUpProxy(status)
        self._opened.enter_context(serving(proxy))
        self.kit["proxy"] = proxy.url
        return proxy

    def listen(self, port: int) -> None:
        """Take a port."""
        listener = self._opened.enter_context(socket.socket())
        listener.bind(("127.0.0.1", port))
        listener.listen()

    def change_machine(self, **changes: Any) -> None:
        """Let the machine say something else."""
        self.machine = replace(self.machine, **changes)

    def hospital(self) -> Hospital:
        """Write kit and policy, and return what the doctor looks at."""
        if self.kit:
            (self.kit_folder / "kit.toml").write_text(tomli_w.dumps(self.kit))
        policy = self.root / "site.toml"
        policy.write_text(tomli_w.dumps(self.policy))
        return Hospital(
            kit_folder=self.kit_folder,
            policy_path=policy,
            page_port=self.page_port,
            runtime_port=free_port(),
            machine=self.machine,
        )

    def examine(self, *, network: bool = True) -> dict[str, Result]:
        """Return the results of all checks, by id."""
        return {result.id: result for result in carry_out(HOSPITAL_CHECKS, self.hospital(), network=network)}

    def _healthy_machine(self) -> Machine:
        home = self.root / "home"
        return Machine(
            environment={
                "HOME": str(home),
                "FLWR_HOME": str(home / "flower"),
                "FLWR_TELEMETRY_ENABLED": "0",
                "FLWR_DISABLE_UPDATE_CHECK": "1",
                "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
                "TZ": "Etc/UTC",
            },
            user_id=USER,
            pause=lambda seconds: None,
            owner=lambda path: USER,
            device=lambda path: 1 if path == self.state else 2,
            file_system=lambda path: "ext4",
            free_bytes=lambda path: 50 * GIB,
            may_write=lambda path: not path.is_relative_to(self.data),
            memory_bytes=lambda: 8 * GIB,
            processors=lambda: 4.0,
            synchronised=lambda: True,
            random_is_ready=lambda: True,
            graphics_card=lambda: None,
            devices=self.root / "devices",
            image_identity=self.root / "aegis-image.json",
        )

    def _make_images(self) -> None:
        draw = np.random.default_rng(0)
        for name in ("normal", "pneumonia"):
            (self.data / name).mkdir()
            for number in range(_IMAGES_PER_CLASS):
                pixels = draw.integers(256, size=(8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(self.data / name / f"patient-{number:04d}.png")


@contextmanager
def healthy_site(root: Path) -> Iterator[Site]:
    """Yield a hospital in perfect health below the empty folder `root`; its server ends with the block."""
    with ExitStack() as opened:
        yield Site(root, opened)


def failures(results: dict[str, Result]) -> set[str]:
    """Return the ids of the checks that failed."""
    return {name for name, result in results.items() if result.status is Status.FAILED}


def free_port() -> int:
    """Return a loopback port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
