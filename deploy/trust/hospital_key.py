"""A hospital's key: ECDSA P-384 as OpenSSH writes it, which Flower's node authentication expects.

A public key is compared and kept as one line without its comment, so that the same key is always the same text.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from federation.errors import ConfigurationError

_MOST_BYTES = 65536


def make_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key from the system's own randomness."""
    return ec.generate_private_key(ec.SECP384R1())


def private_file(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the content of the file `node.key`, as `ssh-keygen -t ecdsa -b 384 -N ""` would write it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def public_line(key: ec.EllipticCurvePublicKey) -> str:
    """Return `key` as one OpenSSH line without a comment."""
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def canonical_line(text: str) -> str:
    """Return the public key in `text` without its comment.

    Raises:
        ConfigurationError: it is no ECDSA P-384 public key in OpenSSH's format.
    """
    if "PRIVATE KEY" in text:
        raise ConfigurationError(
            "Expected a public key, found a private one: the file ending in .pub is the one to send, and this key "
            "must not be used any more if others have seen it."
        )
    try:
        (line,) = text.strip().splitlines()
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError(
            "Expected one line beginning with ecdsa-sha2-nistp384, found something else: "
            "ssh-keygen -t ecdsa -b 384 makes such a key."
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ConfigurationError(
            f"Expected an ECDSA P-384 key, found {text.split(maxsplit=1)[0]}: ssh-keygen -t ecdsa -b 384 makes one."
        )
    return public_line(key)


def read_public_file(path: Path) -> str:
    """Return the public key in the file at `path` without its comment.

    Raises:
        ConfigurationError: it cannot be read, or is no ECDSA P-384 public key in OpenSSH's format.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
    except OSError as error:
        raise ConfigurationError(f"Expected a public key in {path}, which cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"Expected a public key in {path}, found no text.") from None
    try:
        return canonical_line(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def fingerprint(line: str) -> str:
    """Return what `ssh-keygen -l` says of the public key `line`: SHA256 in base64."""
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
