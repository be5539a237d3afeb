"""The consortium's own certificate authority: X.509, ECDSA P-384, for server certificates and nothing else.

Hospitals trust this authority and no other, so no public authority and no other consortium can pose as the server.
Nothing here depends on versions of images or of this software; identities outlive both. Read next: `consortium`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from federation.errors import ConfigurationError

AUTHORITY_DAYS = 3652
SERVER_DAYS = 90
# Clocks of hospitals may be behind; node authentication tolerates far less, but is asked only after TLS.
_EARLIER = timedelta(hours=1)
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LONGEST_NAME = 253


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate's file."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key's file."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def is_host(name: str) -> bool:
    """Return whether `name` is an IP address or the name of a host in ASCII."""
    return _address(name) is not None or (
        len(name) <= _LONGEST_NAME
        and all(_LABEL.fullmatch(label) for label in name.split("."))
        and not name.rpartition(".")[2].isdigit()
    )


def make_authority(consortium: str, *, now: datetime | None = None) -> Pair:
    """Return a new authority for the consortium of that name, which signs certificates of servers directly."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, consortium),
            x509.NameAttribute(NameOID.COMMON_NAME, f"{consortium} CA"[:64]),
        ]
    )
    start = now or datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(start - _EARLIER)
        .not_valid_after(start + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(certificate=builder.sign(key, hashes.SHA384()), key=key)


def issue(authority: Pair, names: tuple[str, ...], *, days: int, now: datetime | None = None) -> Pair:
    """Return a new key and a certificate of `authority` for a server with these `names`, the first its common name.

    The certificate ends with the authority at the latest.

    Raises:
        ConfigurationError: the authority has ended.
    """
    start = now or datetime.now(UTC)
    last = authority.certificate.not_valid_after_utc
    if start >= last:
        raise ConfigurationError(
            f"Expected the consortium's authority to be valid, found that it ended on {last:%Y-%m-%d}: "
            "only a new consortium helps."
        )
    key = ec.generate_private_key(ec.SECP384R1())
    signer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateBuilder(authority.certificate.subject, _common_name(names), key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(start - _EARLIER, authority.certificate.not_valid_before_utc))
        .not_valid_after(min(start + timedelta(days=days), last))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
    )
    return Pair(certificate=builder.sign(authority.key, hashes.SHA384()), key=key)


def serial_of(certificate: x509.Certificate) -> str:
    """Return the serial number as openssl shows it, in hexadecimal."""
    return f"{certificate.serial_number:x}"


def certificate_fingerprint(certificate: x509.Certificate) -> str:
    """Return what `openssl x509 -noout -fingerprint -sha256` shows, without its prefix."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return None if "%" in name else ipaddress.ip_address(name)
    except ValueError:
        return None


def _general_name(name: str) -> x509.GeneralName:
    address = _address(name)
    return x509.DNSName(name) if address is None else x509.IPAddress(address)


def _common_name(names: tuple[str, ...]) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
