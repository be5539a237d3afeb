"""The signed list of files: its one form, and what it finds in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.trust.manifest import (
    SIGNATURE,
    SUMS,
    is_safe_name,
    parse_sums,
    render_sums,
    sign_folder,
    verify_folder,
)
from deploy.trust.signing import VerificationError
from federation.errors import ConfigurationError

KEY = Ed25519PrivateKey.generate()
A, B = "a" * 64, "b" * 64
PARTS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/\\"), min_size=1).filter(
    lambda part: part not in (".", "..")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_bytes(b"first")
    (made / "sub" / "b.txt").write_bytes(b"second")
    sign_folder(made, KEY)
    return made


@settings(deadline=None)
@given(st.dictionaries(PARTS.map(lambda part: f"x{part}"), st.sampled_from([A, B]), min_size=1))
def test_list_is_read_back(digests: dict[str, str]) -> None:
    assert parse_sums(render_sums(digests)) == digests


@pytest.mark.parametrize("name", ["a", "a/b", "a b", ".env", "ä", "~2", "a..b", "..."])
def test_relative_path_is_safe(name: str) -> None:
    assert is_safe_name(name)


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "./a", "a//b", "a/", "a\nb", "a\\b", "a\x00", "a\u202eb"])
def test_path_that_can_leave_its_folder_or_deceive_is_not_safe(name: str) -> None:
    assert not is_safe_name(name)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\xff",
        f"{A}  b\n{A}  a\n".encode(),
        f"{A}  a\n{B}  a\n".encode(),
        f"{A}  a\n{A}  a\n".encode(),
        f"{A} a\n".encode(),
        f"{A} *a\n".encode(),
        f"{A.upper()}  a\n".encode(),
        f"{A[1:]}  a\n".encode(),
        f"{A}  a".encode(),
        f"{A}  a\r\n".encode(),
        f"{A}  a\n\n".encode(),
        f"{A}  a\n# {A}  b\n".encode(),
    ],
)
def test_list_in_any_other_form_is_refused(content: bytes) -> None:
    with pytest.raises(VerificationError, match="digests and names, sorted"):
        parse_sums(content)


@pytest.mark.parametrize("names", [("../a",), ("/a",), ("a", "a/b"), ("a/b/c", "a/b"), (SUMS,), (SIGNATURE,)])
def test_list_of_files_that_cannot_lie_in_one_folder_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(VerificationError, match="within its folder"):
        parse_sums(render_sums(dict.fromkeys(names, A)))


def test_signed_folder_is_verified_file_by_file(folder: Path) -> None:
    seen = {}

    def take(name: str, chunks: Iterator[bytes]) -> str:
        seen[name] = b"".join(chunks)
        return digests[name]

    digests = verify_folder(folder, KEY.public_key()).digests
    verify_folder(folder, KEY.public_key(), take)

    assert seen == {"a.txt": b"first", "sub/b.txt": b"second"}


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_list_is_read_by_sha256sum(folder: Path) -> None:
    done = subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=folder, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr


def test_folder_signed_again_after_a_change_is_verified(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"changed")
    sign_folder(folder, KEY)

    assert set(verify_folder(folder, KEY.public_key()).digests) == {"a.txt", "sub/b.txt"}


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda folder: (folder / "a.txt").write_bytes(b"First"), r"'a.txt' with SHA-256 .* it was changed"),
        (lambda folder: (folder / "a.txt").unlink(), r"'a.txt' .* missing"),
        (lambda folder: (folder / "c.txt").touch(), r"found also 'c.txt'"),
        (lambda folder: (folder / "sub" / SUMS).touch(), "found also 'sub/SHA256SUMS'"),
        (lambda folder: (folder / "a.txt").rename(folder / "c.txt"), r"found also 'c.txt'"),
        (lambda folder: (folder / "c").symlink_to("a.txt"), "a link or a device"),
        (lambda folder: (folder / "c").symlink_to("/etc"), "a link or a device"),
        (lambda folder: os.mkfifo(folder / "c"), "a link or a device"),
        (lambda folder: (folder / SUMS).write_bytes(render_sums({"a.txt": A})), "signed with the key"),
        (lambda folder: (folder / SUMS).unlink(), "found none: nothing here is signed"),
        (lambda folder: (folder / SIGNATURE).unlink(), "found none: nothing here is signed"),
        (lambda folder: (folder / SIGNATURE).write_bytes(bytes(64)), "signed with the key"),
        (
            lambda folder: (folder / SIGNATURE).write_bytes((folder / SIGNATURE).read_bytes() + b"x"),
            "signed with the key",
        ),
    ],
)
def test_folder_that_is_not_what_was_signed_is_refused(folder: Path, tamper: object, message: str) -> None:
    tamper(folder)  # type: ignore[operator]

    with pytest.raises(VerificationError, match=message):
        verify_folder(folder, KEY.public_key())


def test_signature_is_checked_before_anything_else_is_looked_into(folder: Path) -> None:
    (folder / SUMS).write_bytes(b"nonsense")
    (folder / "a.txt").write_bytes(b"changed")

    with pytest.raises(VerificationError, match="signed with the key"):
        verify_folder(folder, KEY.public_key())


def test_file_that_is_replaced_by_a_link_between_listing_and_reading_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "twin").write_bytes(b"first")
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to(folder.parent / "twin")
    monkeypatch.setattr("deploy.trust.manifest.list_files", lambda _: ["a.txt", "sub/b.txt", SUMS, SIGNATURE])

    with pytest.raises(OSError, match="symbolic links"):
        verify_folder(folder, KEY.public_key())


@pytest.mark.parametrize("name", ["a\nb", "a\\b", "a\u202eb"])
def test_file_whose_name_a_list_cannot_hold_is_not_signed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()

    with pytest.raises(ConfigurationError, match="printable names"):
        sign_folder(tmp_path, KEY)

    assert [path.name for path in tmp_path.iterdir()] == [name]
