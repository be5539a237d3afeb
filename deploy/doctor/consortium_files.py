"""What the doctor reads of a coordinator's folder, and of the database of Flower's SuperLink; it changes neither."""

from __future__ import annotations

import sqlite3
import tomllib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from federation.errors import ConfigurationError

_BUSY_S = 5.0
_WITHDRAWN = "unregistered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One hospital of the consortium.

    Attributes:
        id: its name.
        keys: public keys with which it must be let in, one OpenSSH line each; none where it was revoked.
    """

    id: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """What stands in `consortium.toml`.

    Attributes:
        name: of the consortium.
        host: the server's, as hospitals reach it.
        port: likewise.
        names: what the server's certificate must carry.
        internal_names: likewise, that of the SuperLink behind the edge.
        members: all hospitals.
    """

    name: str
    host: str
    port: int
    names: tuple[str, ...]
    internal_names: tuple[str, ...]
    members: tuple[Member, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what stands in the file at `path`.

        Raises:
            ConfigurationError: there is none, or something is missing in it.
        """
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
            return cls(
                name=str(content["name"]),
                host=str(content["host"]),
                port=int(content["port"]),
                names=(str(content["host"]), *map(str, content.get("sans", []))),
                internal_names=tuple(map(str, content.get("internal-sans", []))),
                members=tuple(map(_member, content.get("hospitals", []))),
            )
        except FileNotFoundError:
            raise ConfigurationError(f"Expected a consortium in {path.parent}, found no {path.name}.") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(f"Expected a consortium in {path}, found another content: {error}.") from None


def _member(content: dict[str, Any]) -> Member:
    keys = [] if content.get("revoked") else [content["public-key"], content.get("previous-key", "")]
    return Member(id=str(content["id"]), keys=tuple(str(key) for key in keys if key))


def registered_keys(database: Path) -> frozenset[str]:
    """Return the public keys that the SuperLink lets in, one OpenSSH line each.

    Raises:
        sqlite3.Error: the database cannot be read, or is no SuperLink's.
    """
    with closing(open_database(database)) as opened:
        rows = opened.execute("SELECT public_key FROM node WHERE status != ?", (_WITHDRAWN,)).fetchall()
    return frozenset(_openssh_line(row[0]) for row in rows)


def open_database(path: Path) -> sqlite3.Connection:
    """Return the SQLite database at `path`, opened for reading.

    Raises:
        sqlite3.Error: there is none.
    """
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)


def _openssh_line(pem: bytes) -> str:
    """Return a key in OpenSSH's format; empty for one that it cannot write."""
    try:
        key = serialization.load_pem_public_key(pem)
        return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return ""
