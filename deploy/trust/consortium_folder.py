"""The folder that a coordinator guards: whoever can read it can pose as the server and sign kits."""

from __future__ import annotations

import fcntl
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli_w
from pydantic import ValidationError

from deploy.trust.consortium import Consortium
from federation.durable import write_durably
from federation.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsortiumFolder:
    """The places in a coordinator's folder."""

    path: Path

    @property
    def toml(self) -> Path:
        """Who belongs to the consortium."""
        return self.path / "consortium.toml"

    @property
    def authority(self) -> Path:
        """Certificate of the authority; its key is `ca.key`."""
        return self.path / "ca.crt"

    @property
    def server(self) -> Path:
        """Folder of the server's certificates; `current` in it links to the valid one."""
        return self.path / "server"

    @property
    def internal(self) -> Path:
        """Certificate of the SuperLink, for the proxy before it; its key is `superlink.key`."""
        return self.path / "superlink.crt"

    @property
    def executor_secret(self) -> Path:
        """What Flower's SuperExec proves itself with to the SuperLink."""
        return self.path / "superexec.secret"

    @property
    def signing_key(self) -> Path:
        """Signs kits and bundles; its public half is `bundle.pub`."""
        return self.path / "bundle.key"

    @property
    def kits(self) -> Path:
        """Folder of the kits."""
        return self.path / "kits"

    def read(self) -> Consortium:
        """Return who belongs to the consortium.

        Raises:
            ConfigurationError: there is none, or the file cannot be used.
        """
        try:
            return Consortium.model_validate(tomllib.loads(self.toml.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise ConfigurationError(
                f"Expected a consortium in {self.path}, found no {self.toml.name}: aegis enrol init makes one."
            ) from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{self.toml} cannot be read: {error}") from None
        except ValidationError as error:
            raise ConfigurationError("\n".join([f"{self.toml}:", *told(error)])) from None

    def write(self, consortium: Consortium) -> None:
        """Replace `consortium.toml`, durably, and what the page shows of it."""
        checked = Consortium.model_validate(consortium.model_dump(by_alias=True))
        write_durably(self.toml, tomli_w.dumps(checked.model_dump(by_alias=True)).encode(), mode=0o644)
        self.show()

    def show(self) -> None:
        """Copy what the coordinator's page needs into `page/`, which is all that its container sees: no private key."""
        page = self.path / "page"
        (page / "server" / "current").mkdir(parents=True, exist_ok=True)
        for path in (self.toml, self.authority, self.internal, self.server / "current" / "server.crt"):
            if path.is_file():
                write_durably(page / path.relative_to(self.path), path.read_bytes(), mode=0o644)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other command that changes this consortium out until the block ends.

        Raises:
            ConfigurationError: there is no such folder, or another command is at work.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigurationError(
                f"Expected the consortium's folder {self.path}, found none: aegis enrol init makes it."
            ) from None
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"Expected nobody else to change {self.path}, found another command at work: wait for its end."
            ) from None


def told(error: ValidationError) -> list[str]:
    """Return what is wrong, a line for each key."""
    return [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
