"""The coordinator's Ed25519 key that signs kits and offline bundles, and how a hospital recognises it.

Plain formats on purpose, PEM keys and a bare signature of 64 bytes, so that a hospital can check what it was handed
before it runs anything of it: `openssl pkeyutl -verify -pubin -inkey bundle.pub -rawin -in SHA256SUMS -sigfile
SHA256SUMS.sig`, then `sha256sum --check --strict SHA256SUMS`. Read next: `manifest`, what is signed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from federation.errors import AegisError, ConfigurationError

SIGNATURE_BYTES = 64
_MOST_BYTES = 65536
_GROUP = 4


class VerificationError(AegisError):
    """What was handed out is not, byte for byte, what the coordinator signed."""


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """Return `key` as the file that the coordinator keeps."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: Ed25519PublicKey) -> bytes:
    """Return `key` as the file that every hospital gets."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in the file at `path`.

    Raises:
        ConfigurationError: it cannot be read, or is no Ed25519 private key.
    """
    try:
        key = serialization.load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigurationError(f"Expected the key that signs bundles in {path}, found no private key.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError(f"Expected the key that signs bundles, Ed25519, in {path}, found another kind.")
    return key


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Return the public key in the file at `path`.

    Raises:
        ConfigurationError: it cannot be read, or is no Ed25519 public key.
    """
    try:
        key = serialization.load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError(
            f"Expected the coordinator's bundle.pub in {path}, found no public key: ask the coordinator for it."
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError(f"Expected the coordinator's bundle.pub, Ed25519, in {path}, found another kind.")
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of `key` in hexadecimal, in groups of four, to be read out on the telephone.

    The digits are those of `openssl pkey -pubin -in bundle.pub -outform DER | sha256sum`.
    """
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digits = hashlib.sha256(encoded).hexdigest()
    return " ".join(digits[start : start + _GROUP] for start in range(0, len(digits), _GROUP))


def require_signature(key: Ed25519PublicKey, signature: bytes, content: bytes) -> None:
    """Return if `signature` of `content` was made with the private half of `key`.

    Raises:
        VerificationError: it was not.
    """
    try:
        key.verify(signature, content)
    except InvalidSignature:
        raise VerificationError(
            f"Expected a list of files signed with the key {fingerprint(key)}, found another signature: either this "
            "is not the coordinator's public key, or the list was changed after it was signed. Use nothing of it."
        ) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise ConfigurationError(f"Expected a key in {path}, which cannot be read: {error.strerror}.") from None
