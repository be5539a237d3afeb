"""Dates of certificates, of real ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy.status_page.certificates import read_expiry
from federation.errors import DataError

END = datetime(2030, 5, 4, 3, 2, 1, tzinfo=UTC)


def make_certificate(end: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trial")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    made = builder.not_valid_before(end - timedelta(days=90)).not_valid_after(end).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def test_end_of_a_certificate_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(make_certificate(END))

    assert read_expiry(path) == END.timestamp()


def test_first_end_of_several_certificates_counts(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(b"".join(make_certificate(END + timedelta(days=days)) for days in (30, 0, 60)))

    assert read_expiry(path) == END.timestamp()


@pytest.mark.parametrize("content", [b"", b"no certificate", make_certificate(END)[:200], b"\xff\xfe\x00"])
def test_file_without_a_certificate_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(content)

    with pytest.raises(DataError, match="Expected certificates in PEM format"):
        read_expiry(path)
