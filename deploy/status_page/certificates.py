"""How long the certificates that this hospital's connection rests on are valid."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from federation.errors import DataError


def read_expiry(path: Path) -> float:
    """Return when the first of the certificates in the PEM file at `path` ends, in seconds since 1970.

    Raises:
        DataError: it holds none, or one that cannot be read.
        OSError: the file cannot be read.
    """
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
        return min(certificate.not_valid_after_utc.timestamp() for certificate in found)
    except ValueError as error:
        raise DataError(f"Expected certificates in PEM format in {path}, found: {error}") from None
