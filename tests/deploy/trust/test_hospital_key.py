"""A hospital's key, as OpenSSH and Flower read it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from deploy.trust.hospital_key import canonical_line, fingerprint, make_key, private_file, public_line, read_public_file
from federation.errors import ConfigurationError

needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def keygen(*arguments: str | Path) -> str:
    done = subprocess.run(["ssh-keygen", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_keys_are_p384_and_never_twice_the_same() -> None:
    first, second = make_key(), make_key()

    assert isinstance(first.curve, ec.SECP384R1)
    assert public_line(first.public_key()) != public_line(second.public_key())


def test_private_file_is_read_back_by_what_flower_reads_it_with() -> None:
    key = make_key()

    read = serialization.load_ssh_private_key(private_file(key), None)

    assert isinstance(read, ec.EllipticCurvePrivateKey)
    assert read.private_numbers() == key.private_numbers()


@needs_ssh
def test_openssh_finds_the_same_public_key_and_fingerprint(tmp_path: Path) -> None:
    key = make_key()
    path = tmp_path / "node.key"
    path.touch(mode=0o600)
    path.write_bytes(private_file(key))

    line = public_line(key.public_key())

    assert keygen("-y", "-f", path) == line
    assert keygen("-l", "-f", path).split()[:2] == ["384", fingerprint(line)]


@needs_ssh
def test_key_of_openssh_is_taken_without_its_comment(tmp_path: Path) -> None:
    keygen("-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "it@hospital", "-f", tmp_path / "own")

    line = read_public_file(tmp_path / "own.pub")

    assert line == keygen("-y", "-f", tmp_path / "own").removesuffix(" it@hospital")
    assert "it@hospital" not in line


def test_line_keeps_nothing_but_kind_and_key() -> None:
    line = public_line(make_key().public_key())

    assert canonical_line(f"  {line} somebody@somewhere\n") == line


def test_private_key_sent_by_mistake_is_named_as_one() -> None:
    with pytest.raises(ConfigurationError, match="found a private one"):
        canonical_line(private_file(make_key()).decode())


def test_other_kinds_of_keys_are_refused_with_the_command_that_makes_the_right_one() -> None:
    openssh = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    other_kind = ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(*openssh)
    other_curve = ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(*openssh)

    for line in (other_kind, other_curve):
        with pytest.raises(ConfigurationError, match="ssh-keygen -t ecdsa -b 384"):
            canonical_line(line.decode())


@pytest.mark.parametrize("text", ["", "hello", "ecdsa-sha2-nistp384 AAAA", "ecdsa-sha2-nistp384 ä"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="Expected one line beginning with ecdsa-sha2-nistp384"):
        canonical_line(text)


def test_file_with_two_keys_is_refused() -> None:
    lines = "\n".join(public_line(make_key().public_key()) for _ in range(2))

    with pytest.raises(ConfigurationError, match="Expected one line"):
        canonical_line(lines)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bytes.pub").write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigurationError, match=r"nothing.pub, which cannot be read"):
        read_public_file(tmp_path / "nothing.pub")
    with pytest.raises(ConfigurationError, match=r"bytes.pub, found no text"):
        read_public_file(tmp_path / "bytes.pub")
