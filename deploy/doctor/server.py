"""The server that the checks look at: the coordinator's folder, Flower's database, the runs, the edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from deploy.doctor.consortium_files import Roster
from deploy.doctor.machine import Machine
from deploy.doctor.wire import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where everything is. Files are read anew whenever they are asked for.

    Attributes:
        folder: of the consortium.
        database: of Flower's SuperLink; None where it is not to be looked at.
        runs: folder of the runs; likewise.
        edge: host and port of the edge that hospitals reach; likewise.
        superlink_port: of the SuperLink, behind the edge.
        machine: what the machine says of itself.
    """

    folder: Path
    database: Path | None = None
    runs: Path | None = None
    edge: tuple[str, int] | None = None
    superlink_port: int = 8000
    machine: Machine = field(default_factory=Machine)

    @property
    def authority(self) -> Path:
        """Certificate of the consortium's authority."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's certificate; its key lies beside it. The link to both is followed once."""
        return (self.folder / "server" / "current").resolve() / "server.crt"

    @property
    def internal_certificate(self) -> Path:
        """The certificate of the SuperLink; its key lies beside it."""
        return self.folder / "superlink.crt"

    def secrets(self) -> list[Path]:
        """Return the files that nobody else may read, as far as they are there."""
        names = ("ca.key", "bundle.key", "superlink.key", "superexec.secret")
        files = [self.certificate.with_suffix(".key"), *(self.folder / name for name in names)]
        return [path for path in files if path.exists()]

    def roster(self) -> Roster:
        """Return who belongs to the consortium.

        Raises:
            ConfigurationError: `consortium.toml` cannot be used.
        """
        return Roster.read(self.folder / "consortium.toml")

    def route(self) -> Route | None:
        """Return the way to the edge; None where it is not to be looked at."""
        if self.edge is None:
            return None
        host, port = self.edge
        return Route(host=host, port=port, name=self.roster().host)
