"""The coordinator's key, as a hospital without any of our software can use it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deploy.trust.signing import (
    VerificationError,
    fingerprint,
    private_pem,
    public_pem,
    read_public_key,
    read_signing_key,
    require_signature,
)
from federation.errors import ConfigurationError

KEY = Ed25519PrivateKey.generate()


def test_keys_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "bundle.key").write_bytes(private_pem(KEY))
    (tmp_path / "bundle.pub").write_bytes(public_pem(KEY.public_key()))

    assert read_signing_key(tmp_path / "bundle.key").private_bytes_raw() == KEY.private_bytes_raw()
    assert read_public_key(tmp_path / "bundle.pub") == KEY.public_key()


def test_fingerprint_is_the_digest_of_the_key_in_groups_of_four() -> None:
    encoded = KEY.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)

    shown = fingerprint(KEY.public_key())

    assert shown.replace(" ", "") == hashlib.sha256(encoded).hexdigest()
    assert [len(group) for group in shown.split()] == [4] * 16


def test_signature_holds_for_the_very_bytes_and_the_very_key() -> None:
    signature = KEY.sign(b"content")
    require_signature(KEY.public_key(), signature, b"content")

    with pytest.raises(VerificationError, match="Use nothing of it"):
        require_signature(KEY.public_key(), signature, b"Content")
    with pytest.raises(VerificationError, match=fingerprint(KEY.public_key())):
        require_signature(KEY.public_key(), Ed25519PrivateKey.generate().sign(b"content"), b"content")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_checks_the_signature_and_shows_the_same_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "bundle.pub").write_bytes(public_pem(KEY.public_key()))
    (tmp_path / "SHA256SUMS").write_bytes(b"content\n")
    (tmp_path / "SHA256SUMS.sig").write_bytes(KEY.sign(b"content\n"))

    key = ["-pubin", "-inkey", "bundle.pub"]
    check = ["openssl", "pkeyutl", "-verify", *key, "-rawin", "-in", "SHA256SUMS", "-sigfile", "SHA256SUMS.sig"]
    checked = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    show = ["openssl", "pkey", "-pubin", "-in", "bundle.pub", "-outform", "DER"]
    encoded = subprocess.run(show, cwd=tmp_path, capture_output=True, check=True).stdout

    assert checked.returncode == 0, checked.stderr
    assert hashlib.sha256(encoded).hexdigest() == fingerprint(KEY.public_key()).replace(" ", "")


def test_file_that_holds_another_key_or_none_is_named(tmp_path: Path) -> None:
    other = ec.generate_private_key(ec.SECP384R1())
    files = {
        "none": b"hello",
        "other.pub": other.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        "other.key": other.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    with pytest.raises(ConfigurationError, match="none, found no public key"):
        read_public_key(tmp_path / "none")
    with pytest.raises(ConfigurationError, match=r"other.pub, found another kind"):
        read_public_key(tmp_path / "other.pub")
    with pytest.raises(ConfigurationError, match="none, found no private key"):
        read_signing_key(tmp_path / "none")
    with pytest.raises(ConfigurationError, match=r"other.key, found another kind"):
        read_signing_key(tmp_path / "other.key")
    with pytest.raises(ConfigurationError, match="missing, which cannot be read"):
        read_public_key(tmp_path / "missing")
