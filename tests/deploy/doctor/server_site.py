"""A coordinator's server in a folder, in perfect health; faults are seeded into it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.doctor.catalogue import SERVER_CHECKS
from deploy.doctor.checks import Result, carry_out
from deploy.doctor.machine import Machine
from deploy.doctor.server import Server
from tests.deploy.doctor.made_up_certificates import Pair, issue, make_authority, openssh_public, pem_public
from tests.deploy.doctor.made_up_server import MadeUpServer, serving
from tests.deploy.doctor.site import GIB, USER, free_port


class ServerSite:
    """One server; whatever is public may be spoilt, then `examine` looks.

    Attributes:
        root: everything lies below it.
        consortium: content of consortium.toml, written when one looks.
        authority: the consortium's.
        edge: what hospitals reach.
        superlink_port: of the SuperLink.
        machine: what the machine says of itself.
    """

    def __init__(self, root: Path, opened: ExitStack) -> None:
        self.root, self._opened = root, opened
        for folder in (self.folder, self.database.parent, self.runs, root / "home"):
            folder.mkdir()
        self.authority = make_authority()
        self.authority.write(self.folder / "ca.crt")
        pair = issue(self.authority, "localhost", "aegis.example")
        self.install(pair)
        issue(self.authority, "superlink", "127.0.0.1").write(self.folder / "superlink.crt")
        for name in ("superexec.secret", "bundle.key"):
            (self.folder / name).write_text("secret")
            (self.folder / name).chmod(0o600)
        self.edge = MadeUpServer(root, pair)
        opened.enter_context(serving(self.edge))
        self.superlink_port = free_port()
        keys = {name: ec.generate_private_key(ec.SECP384R1()) for name in ("north", "south", "gone")}
        self.consortium: dict[str, Any] = {
            "format": 1,
            "name": "Four clinics",
            "host": "localhost",
            "port": self.edge.port,
            "sans": ["aegis.example"],
            "internal-sans": ["superlink", "127.0.0.1"],
            "created": "2026-11-01",
            "hospitals": [
                {"id": "north", "public-key": openssh_public(keys["north"]), "enrolled": "2026-11-01"},
                {"id": "south", "public-key": openssh_public(keys["south"]), "enrolled": "2026-11-01"},
                {
                    "id": "gone",
                    "public-key": openssh_public(keys["gone"]),
                    "enrolled": "2026-11-01",
                    "revoked": "2026-11-02",
                },
            ],
        }
        self._make_database()
        for name in ("north", "south"):
            self.register(pem_public(keys[name]))
        self.register(pem_public(keys["gone"]), status="unregistered")
        self.machine = self._healthy_machine()

    @property
    def folder(self) -> Path:
        return self.root / "consortium"

    @property
    def database(self) -> Path:
        return self.root / "superlink" / "state.db"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def certificate(self) -> Path:
        return self.folder / "server" / "current" / "server.crt"

    def install(self, pair: Pair) -> None:
        """Make `pair` the server's certificate and key, below a link, as `aegis enrol` does."""
        pair.write(self.folder / "server" / "1" / "server.crt")
        link = self.folder / "server" / "current"
        link.unlink(missing_ok=True)
        link.symlink_to("1")

    def register(self, public_key: bytes, *, status: str = "registered") -> None:
        """Let the SuperLink know a key."""
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute("INSERT INTO node (public_key, status) VALUES (?, ?)", (public_key, status))

    def listen_as_superlink(self, pair: Pair) -> None:
        """Let somebody answer at the SuperLink's port with this certificate."""
        (self.root / "other").mkdir()
        other = MadeUpServer(self.root / "other", pair)
        self._opened.enter_context(serving(other))
        self.superlink_port = other.port

    def change_machine(self, **changes: Any) -> None:
        """Let the machine say something else."""
        self.machine = replace(self.machine, **changes)

    def server(self, **changes: Any) -> Server:
        """Write consortium.toml, and return what the doctor looks at."""
        if self.consortium:
            (self.folder / "consortium.toml").write_text(tomli_w.dumps(self.consortium))
        whole = Server(
            folder=self.folder,
            database=self.database,
            runs=self.runs,
            edge=("127.0.0.1", self.edge.port),
            superlink_port=self.superlink_port,
            machine=self.machine,
        )
        return replace(whole, **changes)

    def examine(self, **changes: Any) -> dict[str, Result]:
        """Return the results of all checks, by id."""
        return {result.id: result for result in carry_out(SERVER_CHECKS, self.server(**changes))}

    def _make_database(self) -> None:
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute("CREATE TABLE node (public_key BLOB, status TEXT)")
            database.execute("CREATE TABLE object (id TEXT, content BLOB)")
            database.executemany("INSERT INTO object VALUES (?, ?)", [(str(n), bytes(3000)) for n in range(20)])

    def _healthy_machine(self) -> Machine:
        home = self.root / "home"
        return Machine(
            environment={
                "HOME": str(home),
                "FLWR_TELEMETRY_ENABLED": "0",
                "FLWR_DISABLE_UPDATE_CHECK": "1",
                "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            },
            user_id=USER,
            file_system=lambda path: "ext4",
            free_bytes=lambda path: 50 * GIB,
            may_write=lambda path: True,
            memory_bytes=lambda: 8 * GIB,
            processors=lambda: 4.0,
            synchronised=lambda: True,
            random_is_ready=lambda: True,
        )


@contextmanager
def healthy_server(root: Path) -> Iterator[ServerSite]:
    """Yield a server in perfect health below the empty folder `root`; it ends with the block."""
    with ExitStack() as opened:
        yield ServerSite(root, opened)
