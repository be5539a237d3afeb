"""The kit that a coordinator hands to a hospital: `kit.toml` and the files it names, in one folder.

A container of the hospital sees that folder read-only at `/etc/aegis`, beside the hospital's own `site.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Self

import tomli_w
from pydantic import Field, ValidationError, field_validator

from federation.config.table import Table
from federation.errors import ConfigurationError
from federation.identifiers import Identifier

FILE = "kit.toml"
_LARGEST_PORT = 65535


class Kit(Table):
    """What a hospital needs to reach its consortium and nothing else; no secret stands in it.

    Attributes:
        format: of this file.
        consortium: its name.
        hospital_id: how the coordinator knows this hospital.
        host: the server's name or address, which its certificate carries.
        port: the only port a hospital ever connects to.
        ca: file name of the consortium's certificate authority, PEM.
        key: file name of the hospital's private key, ECDSA P-384 in OpenSSH format.
        public_key: its public half in one OpenSSH line.
        proxy: URL of an HTTP proxy that the way out leads through; empty for none. The hospital writes it.
    """

    format: int = Field(1, ge=1, le=1)
    consortium: str
    hospital_id: Identifier
    host: str
    port: int = Field(ge=1, le=_LARGEST_PORT)
    ca: str = "ca.crt"
    key: str = "node.key"
    public_key: str
    proxy: str = ""

    @field_validator("ca", "key")
    @classmethod
    def _be_a_file_name(cls, name: str) -> str:
        if not name or name != Path(name).name:
            raise ValueError(f"Expected the name of a file in the folder of the kit, found {name!r}.")
        return name

    @property
    def server(self) -> str:
        """The server as `host:port`; an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def write(self, folder: Path) -> None:
        """Write `kit.toml` into `folder`."""
        (folder / FILE).write_text(tomli_w.dumps(self.model_dump(by_alias=True)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the kit in `folder`.

        Raises:
            ConfigurationError: there is none, or it cannot be used.
        """
        path = folder / FILE
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise ConfigurationError(
                f"Expected a kit in {folder}, found no {FILE}: the coordinator hands it out."
            ) from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from None
        except ValidationError as error:
            lines = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
            raise ConfigurationError("\n".join([f"{path}:", *lines])) from None
