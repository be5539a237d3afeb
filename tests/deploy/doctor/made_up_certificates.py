"""Certificates and keys for tests, good ones and bad ones."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def write(self, certificate: Path) -> None:
        """Write both, the key beside the certificate, as PEM and for the owner's eyes only."""
        certificate.parent.mkdir(parents=True, exist_ok=True)
        certificate.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        key = certificate.with_suffix(".key")
        key.write_bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        key.chmod(0o600)


def make_authority(name: str = "Consortium CA", *, days: tuple[float, float] = (-1, 365), ca: bool = True) -> Pair:
    """Return an authority that is valid between two days from now."""
    key = ec.generate_private_key(ec.SECP384R1())
    builder = _builder(name, name, key, days).add_extension(x509.BasicConstraints(ca, None), critical=True)
    return Pair(builder.sign(key, hashes.SHA384()), key)


def issue(
    authority: Pair, *names: str, days: tuple[float, float] = (-1, 90), key: ec.EllipticCurvePrivateKey | None = None
) -> Pair:
    """Return a certificate of `authority` for the hosts `names`."""
    own = key or ec.generate_private_key(ec.SECP384R1())
    issuer = authority.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    builder = _builder(str(issuer), names[0], own, days).add_extension(alternatives, critical=False)
    return Pair(builder.sign(authority.key, hashes.SHA384()), own)


def openssh_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as a kit has it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def openssh_public(key: ec.EllipticCurvePrivateKey) -> str:
    """Return its public half in one line."""
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def pem_public(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return its public half as Flower has it."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _builder(
    issuer: str, subject: str, key: ec.EllipticCurvePrivateKey, days: tuple[float, float]
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
