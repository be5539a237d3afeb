"""What a bundle holds, that it is the same every time, and what is never packed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deploy.bundle import making
from deploy.bundle.making import Sources, make_bundle
from deploy.trust.hospital_key import make_key, private_file
from deploy.trust.manifest import read_chunks
from deploy.trust.signing import VerificationError, fingerprint, private_pem, public_pem
from federation.errors import ConfigurationError
from tests.deploy.bundle.packed import KEY, Packed, pack


def test_bundle_begins_with_the_signed_list_and_holds_everything_sorted(packed: Packed) -> None:
    names = [name for name, _ in packed.members]

    assert names[:2] == ["SHA256SUMS", "SHA256SUMS.sig"]
    assert names[2:] == sorted(
        [
            "bundle.json",
            "image/aegis-hospital.tar",
            "docs/manual/index.md",
            "docs/manual/pages/a b.md",
            *(f"kit/{path.name}" for path in packed.sources.kit.iterdir()),
        ]
    )


def test_bundle_says_whom_it_is_for_and_what_the_image_is(packed: Packed) -> None:
    told = json.loads(dict(packed.members)["bundle.json"])

    image = packed.sources.image.read_bytes()
    assert (told["consortium"], told["hospital-id"], set(told["versions"])) == (
        "Heart Network",
        "north",
        {"aegis-fl", "flwr", "torch"},
    )
    assert told["image"] == {
        "file": "image/aegis-hospital.tar",
        "sha256": sha256(image).hexdigest(),
        "size-bytes": len(image),
    }


def test_same_sources_make_the_same_bytes_wherever_and_whenever(packed: Packed, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(packed.archive.parent, moved, copy_function=shutil.copyfile)
    sources = dataclasses.replace(
        packed.sources, kit=moved / "kit", image=moved / "aegis-hospital.tar", docs=(moved / "manual",)
    )

    make_bundle(sources, KEY, tmp_path / "again.tar")

    assert (tmp_path / "again.tar").read_bytes() == packed.content


def test_private_keys_and_the_bundle_itself_are_for_their_owner_alone(packed: Packed) -> None:
    with tarfile.open(packed.archive) as archive:
        modes = {member.name: member.mode for member in archive}

    assert {name for name, mode in modes.items() if mode == 0o600} == {"kit/node.key"}
    assert set(modes.values()) == {0o600, 0o644}
    assert stat.S_IMODE(packed.archive.stat().st_mode) == 0o600


needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("tar", "sha256sum", "openssl"))), reason="needs tar, sha256sum and openssl"
)


def follow_the_page(folder: Path, content: bytes) -> subprocess.CompletedProcess[str]:
    """Do the first step of the page for hospitals in `folder`, with a bundle of this content."""
    (folder / "hospital-a.tar").write_bytes(content)
    (folder / "bundle.pub").write_bytes(public_pem(KEY.public_key()))
    page = (Path(__file__).parents[3] / "docs" / "deploy" / "hospital-it.md").read_text(encoding="utf-8")
    step = page.partition("```bash\n")[2].partition("```")[0]
    assert "openssl pkeyutl -verify" in step
    return subprocess.run(["bash", "-c", step], cwd=folder, capture_output=True, text=True, check=False)


@needs_tools
def test_bundle_is_unpacked_and_checked_by_tools_that_every_hospital_has(packed: Packed, tmp_path: Path) -> None:
    done = follow_the_page(tmp_path, packed.content)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Signature Verified Successfully" in done.stdout
    assert fingerprint(KEY.public_key()).replace(" ", "") in done.stdout
    with tarfile.open(packed.archive) as archive:
        assert all((tmp_path / member.name).is_file() for member in archive)


def follow_the_page_with_one_more(packed: Packed, folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Do the first step of the page in `folder`/place with a bundle to which somebody added a file of this name."""
    shutil.copyfile(packed.archive, folder / "longer.tar")
    (folder / "evil.yaml").write_text("services: {}")
    with tarfile.open(folder / "longer.tar", "a") as archive:
        archive.add(folder / "evil.yaml", arcname=name)
    (folder / "place").mkdir()
    return follow_the_page(folder / "place", (folder / "longer.tar").read_bytes())


@needs_tools
def test_file_that_was_added_on_the_way_is_not_unpacked(packed: Packed, tmp_path: Path) -> None:
    done = follow_the_page_with_one_more(packed, tmp_path, "kit/compose.override.yaml")

    assert done.returncode == 0
    assert (tmp_path / "place" / "kit" / "kit.toml").is_file()
    assert not (tmp_path / "place" / "kit" / "compose.override.yaml").exists()


@needs_tools
def test_file_that_was_put_in_the_place_of_another_on_the_way_ends_the_check(packed: Packed, tmp_path: Path) -> None:
    done = follow_the_page_with_one_more(packed, tmp_path, "kit/kit.toml")

    assert done.returncode != 0
    assert "kit/kit.toml: FAILED" in done.stdout


def test_kit_that_was_changed_is_refused_with_what_helps(tmp_path: Path) -> None:
    made = pack(tmp_path)
    (made.sources.kit / ".env").write_text("AEGIS_DATA=/srv\n")

    with pytest.raises(VerificationError, match=r"'.env' with SHA-256 .* aegis enrol sign"):
        make_bundle(made.sources, KEY, tmp_path / "other.tar")

    assert not (tmp_path / "other.tar").exists()


def test_kit_of_another_consortium_is_refused(packed: Packed, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="signed with the key"):
        make_bundle(packed.sources, Ed25519PrivateKey.generate(), tmp_path / "other.tar")


@pytest.mark.parametrize("content", [private_file(make_key()), private_pem(KEY)])
def test_private_key_among_the_documents_is_never_packed(tmp_path: Path, content: bytes) -> None:
    made = pack(tmp_path)
    (tmp_path / "manual" / "notes.md").write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"found a private key in .*notes.md"):
        make_bundle(made.sources, KEY, tmp_path / "other.tar")


def test_link_among_the_documents_is_refused(tmp_path: Path) -> None:
    made = pack(tmp_path)
    (tmp_path / "manual" / "link.md").symlink_to("/etc/passwd")

    with pytest.raises(VerificationError, match="a link or a device"):
        make_bundle(made.sources, KEY, tmp_path / "other.tar")


@pytest.mark.parametrize("name", ["x" * 101, "a\nb", "a\\b"])
def test_document_whose_name_an_archive_or_a_list_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    made = pack(tmp_path)
    (tmp_path / "manual" / name).touch()

    with pytest.raises(ConfigurationError, match=r"Expected (names|printable names)"):
        make_bundle(made.sources, KEY, tmp_path / "other.tar")


def test_two_folders_of_documents_of_the_same_name_are_refused(packed: Packed, tmp_path: Path) -> None:
    (tmp_path / "manual").mkdir()
    (tmp_path / "manual" / "other.md").touch()
    sources = dataclasses.replace(packed.sources, docs=(*packed.sources.docs, tmp_path / "manual"))

    with pytest.raises(ConfigurationError, match="found 'docs/manual' twice"):
        make_bundle(sources, KEY, tmp_path / "other.tar")


@pytest.mark.parametrize(
    ("replaced", "message"),
    [({"image": "notes"}, "docker save"), ({"image": "nothing"}, "docker save"), ({"kit": "notes"}, "a kit in|read")],
)
def test_source_that_is_not_what_it_must_be_is_refused(
    packed: Packed, tmp_path: Path, replaced: dict[str, str], message: str
) -> None:
    (tmp_path / "notes").write_text("hello")
    paths = {"kit": packed.sources.kit, "image": packed.sources.image}
    paths |= {key: tmp_path / name for key, name in replaced.items()}
    sources = Sources(kit=paths["kit"], image=paths["image"])

    with pytest.raises(ConfigurationError, match=message):
        make_bundle(sources, KEY, tmp_path / "other.tar")


def test_image_that_changes_while_it_is_packed_leaves_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pack(tmp_path)

    def read_other(file: BinaryIO) -> Iterator[bytes]:
        for chunk in read_chunks(file):
            yield chunk[:-1] + b"!"

    monkeypatch.setattr(making, "read_chunks", read_other)

    with pytest.raises(VerificationError, match="found it changed: repeat"):
        make_bundle(made.sources, KEY, tmp_path / "other.tar")

    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "other"))]


def test_image_is_never_held_in_memory_as_a_whole(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = tmp_path / "image.tar"
    with large.open("wb") as file:
        file.write(packed.sources.image.read_bytes())
        file.truncate(64 << 20)
    sizes: list[int] = []

    def note(file: BinaryIO) -> Iterator[bytes]:
        for chunk in read_chunks(file):
            sizes.append(len(chunk))
            yield chunk

    monkeypatch.setattr(making, "read_chunks", note)

    make_bundle(dataclasses.replace(packed.sources, image=large), KEY, tmp_path / "other.tar")

    assert sum(sizes) > 64 << 20
    assert max(sizes) <= 1 << 20
