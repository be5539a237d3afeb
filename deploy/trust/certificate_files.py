"""Certificates and keys on the coordinator's disk, so that no reader ever meets one without the other.

Each certificate of the server lies with its key in a folder of its own, `server/<serial>/`, and `server/current` is a
relative link to the valid one: mount `server/`, not the link, where a proxy runs in a container.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.trust.authority import Pair, serial_of
from federation.durable import sync_folder, write_durably
from federation.errors import ConfigurationError

CURRENT = "current"
PRIVATE, PUBLIC = 0o600, 0o644


def write_pair(certificate: Path, pair: Pair) -> None:
    """Write the certificate, and its key beside it with the ending `.key`."""
    write_durably(certificate.with_suffix(".key"), pair.key_pem, mode=PRIVATE)
    write_durably(certificate, pair.certificate_pem, mode=PUBLIC)


def read_pair(certificate: Path) -> Pair:
    """Return what `write_pair` wrote.

    Raises:
        ConfigurationError: a file is missing or damaged, or the key is another's.
    """
    key_path = certificate.with_suffix(".key")
    found = read_certificate(certificate)
    try:
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigurationError(f"Expected a private key in {key_path}, which cannot be read: {error}") from None
    except (ValueError, TypeError):
        raise ConfigurationError(f"Expected a private key in {key_path}, found none.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != found.public_key():
        raise ConfigurationError(f"Expected the private key of {certificate.name} in {key_path}, found another.")
    return Pair(certificate=found, key=key)


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in the file at `path`.

    Raises:
        ConfigurationError: it is missing or damaged.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"Expected a certificate in {path}, which cannot be read: {error}") from None
    except ValueError:
        raise ConfigurationError(f"Expected a certificate in {path}, found none.") from None


def install_server_pair(server: Path, pair: Pair) -> Path:
    """Make `pair` the server's certificate and key, in one step; return their folder.

    The pair before it stays for whoever is reading it at this moment; older ones are deleted, keys and all.

    Guarantee: at every moment, also after a crash, `current` leads to a certificate and the key that fits it.
    Not guaranteed: a reader that follows `current` once for each file can meet the switch in between; it should
        resolve the link once, or load again when the two do not fit.
    """
    server.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = (server / CURRENT).readlink().name if (server / CURRENT).is_symlink() else ""
    place = server / serial_of(pair.certificate)
    place.mkdir(mode=0o700)
    write_pair(place / "server.crt", pair)
    sync_folder(server)
    link = server / f".{CURRENT}-{secrets.token_hex(8)}"
    link.symlink_to(place.name)
    link.replace(server / CURRENT)
    sync_folder(server)
    for old in server.iterdir():
        if old.is_dir() and old.name not in (before, place.name, CURRENT):
            shutil.rmtree(old)
    return place
