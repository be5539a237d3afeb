"""What stands in certificates and keys, read from files and from the wire."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy.doctor.checks import Finding, failed, ok, warning
from federation.errors import ConfigurationError

FEW_DAYS = 30
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """When a certificate is valid, in days from now; negative: ago.

    Attributes:
        until_begin: until it begins.
        left: until it ends.
    """

    until_begin: float
    left: float

    @classmethod
    def of(cls, certificate: x509.Certificate, now: float) -> Lifetime:
        """Return the lifetime of `certificate` as seen at `now`, in seconds since 1970."""
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        today = datetime.fromtimestamp(now, UTC)
        return cls(until_begin=(begin - today).total_seconds() / _DAY_S, left=(end - today).total_seconds() / _DAY_S)

    def judge(self) -> Finding:
        """Return whether the certificate is valid, and for long enough that somebody notices in time."""
        if self.left < 0:
            return failed(f"it ended {-self.left:.1f} days ago")
        if self.until_begin > 0:
            return failed(f"it begins in {self.until_begin:.1f} days: a clock is wrong, here or where it was made")
        if self.left < FEW_DAYS:
            return warning(f"{self.left:.1f} days left")
        return ok(f"{self.left:.0f} days left")


def read_certificate(path: Path) -> x509.Certificate:
    """Return the first certificate in the PEM file at `path`.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as error:
        raise ConfigurationError(f"Expected {path.name} to be readable, found: {error.strerror}.") from None
    except ValueError:
        raise ConfigurationError(f"Expected a PEM certificate in {path.name}, found none.") from None


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key on an elliptic curve in the file at `path`, in OpenSSH's format or as PEM.

    Raises:
        ConfigurationError: there is none, or one with a password.
    """
    try:
        content = path.read_bytes()
        load = (
            serialization.load_ssh_private_key
            if b"OPENSSH PRIVATE KEY" in content
            else serialization.load_pem_private_key
        )
        key = load(content, password=None)
    except OSError as error:
        raise ConfigurationError(f"Expected {path.name} to be readable, found: {error.strerror}.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigurationError(f"Expected a private key without a password in {path.name}, found none.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"Expected a key on an elliptic curve in {path.name}, found another kind.")
    return key


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether `certificate` may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether `authority` itself signed `certificate`."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def belongs_to(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    """Return whether `certificate` is about the public half of `key`."""
    return certificate.public_key() == key.public_key()


def names_host(certificate: x509.Certificate, host: str) -> bool:
    """Return whether `host`, a name or an address, stands in `certificate`."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    try:
        return ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        wanted = host.lower()
        known = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
        return wanted in known or f"*.{wanted.partition('.')[2]}" in known


def issuer_of(certificate: x509.Certificate) -> str:
    """Return who signed `certificate`, by its own account."""
    names = (
        certificate.issuer.get_attributes_for_oid(kind) for kind in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    )
    found = [str(name.value) for group in names for name in group]
    return ", ".join(found) or "nobody it names"
