"""What verification finds in archives and folders, and that only what was verified is ever unpacked."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deploy.bundle.verification import verify
from deploy.trust.manifest import SIGNATURE, SUMS, parse_sums, render_sums
from deploy.trust.signing import VerificationError
from federation.errors import ConfigurationError
from tests.deploy.bundle.packed import KEY, PUBLIC, Packed, archive_of

# The disk decides how long an example takes.
without_deadline = settings(deadline=None)


def refused(folder: Path, content: bytes, *, extract: bool = True) -> str:
    """Return why the archive `content` is refused, after which nothing of it may be on the disk."""
    path, target = folder / "tampered.tar", folder / "unpacked"
    path.write_bytes(content)
    with pytest.raises(VerificationError) as caught:
        verify(path, PUBLIC, extract=target if extract else None)
    assert [left.name for left in folder.iterdir()] == [path.name]
    return str(caught.value)


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for examples that hypothesis makes one after another."""
    return tmp_path_factory.mktemp("place")


def test_archive_is_verified_and_says_whom_it_is_for(packed: Packed) -> None:
    found = verify(packed.archive, PUBLIC)

    assert found.contents is not None
    assert (found.contents.hospital_id, found.contents.image.file) == ("north", "image/aegis-hospital.tar")
    assert found.digests == parse_sums(dict(packed.members)[SUMS])


def test_archive_is_unpacked_byte_for_byte_with_keys_for_their_owner_alone(packed: Packed, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "unpacked"

    verify(packed.archive, PUBLIC, extract=target)

    assert files_below(target) == dict(packed.members)
    private = {path.name for path in target.rglob("*") if path.is_file() and not path.stat().st_mode & 0o077}
    assert private == {"node.key"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert [path.name for path in target.parent.iterdir()] == ["unpacked"]


def test_unpacked_folder_is_verified_and_copied_like_the_archive(packed: Packed, tmp_path: Path) -> None:
    verify(packed.archive, PUBLIC, extract=tmp_path / "first")

    found = verify(tmp_path / "first", PUBLIC, extract=tmp_path / "second")

    assert found == verify(packed.archive, PUBLIC)
    assert files_below(tmp_path / "second") == dict(packed.members)


def test_kit_by_itself_is_verified(packed: Packed) -> None:
    found = verify(packed.sources.kit, PUBLIC)

    assert found.contents is None
    assert "kit.toml" in found.digests


def test_another_public_key_is_refused(packed: Packed) -> None:
    with pytest.raises(VerificationError, match="signed with the key"):
        verify(packed.archive, Ed25519PrivateKey.generate().public_key())


@without_deadline
@given(st.data())
def test_every_changed_byte_of_an_archive_is_found(packed: Packed, place: Path, data: st.DataObject) -> None:
    content = bytearray(packed.content)
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))

    assert refused(place, bytes(content), extract=False)


def test_every_changed_bit_of_the_headers_and_around_them_is_found(packed: Packed, place: Path) -> None:
    with tarfile.open(packed.archive) as archive:
        starts = [member.offset for member in archive]
    positions = {start + step for start in starts for step in range(0, 512, 7)} | {start - 1 for start in starts[1:]}
    for position in sorted(positions | {len(packed.content) - 1}):
        content = bytearray(packed.content)
        content[position] ^= 1

        assert refused(place, bytes(content), extract=False), position


@without_deadline
@given(st.data())
@example(None)
def test_every_shortened_archive_is_found(packed: Packed, place: Path, data: st.DataObject | None) -> None:
    length = len(packed.content) - 1 if data is None else data.draw(st.integers(0, len(packed.content) - 1))

    assert refused(place, packed.content[:length], extract=False)


@without_deadline
@given(st.binary(min_size=1, max_size=1024))
@example(bytes(512))
@example(bytes(10240))
def test_everything_behind_the_end_is_found(packed: Packed, place: Path, behind: bytes) -> None:
    assert "another ending" in refused(place, packed.content + behind, extract=False)


@without_deadline
@given(st.data())
def test_every_removed_member_is_found(packed: Packed, place: Path, data: st.DataObject) -> None:
    members = packed.members
    del members[data.draw(st.integers(0, len(members) - 1))]

    assert refused(place, archive_of(members), extract=False)


@without_deadline
@given(st.data())
def test_every_renamed_member_is_found(packed: Packed, place: Path, data: st.DataObject) -> None:
    members = packed.members
    index = data.draw(st.integers(0, len(members) - 1))
    letters = st.characters(codec="ascii", exclude_characters="\0")
    others = st.text(letters, min_size=1, max_size=20).filter(lambda name: name != members[index][0])
    name = data.draw(others | st.sampled_from([name for name, _ in members if name != members[index][0]]))
    members[index] = (name, members[index][1])

    assert refused(place, archive_of(members), extract=False)


@without_deadline
@given(st.data())
def test_every_added_member_is_found_wherever_it_stands(packed: Packed, place: Path, data: st.DataObject) -> None:
    members = packed.members
    names = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=20)
    name = data.draw(names | st.sampled_from([name for name, _ in members]))
    members.insert(data.draw(st.integers(0, len(members))), (name, data.draw(st.binary(max_size=600))))

    assert refused(place, archive_of(members), extract=False)


@without_deadline
@given(st.data())
def test_every_other_order_is_found(packed: Packed, place: Path, data: st.DataObject) -> None:
    members = packed.members
    shuffled = data.draw(st.permutations(members).filter(lambda order: order != members))

    assert refused(place, archive_of(shuffled), extract=False)


@without_deadline
@given(st.data())
def test_every_changed_byte_of_a_folder_is_found(packed: Packed, place: Path, data: st.DataObject) -> None:
    folder = place / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    for name, whole in packed.members:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(whole)
    name = data.draw(st.sampled_from([name for name, whole in packed.members if whole]))
    content = bytearray((folder / name).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    (folder / name).write_bytes(content)

    with pytest.raises(VerificationError):
        verify(folder, PUBLIC)

    shutil.rmtree(folder)


def test_refusals_say_in_one_sentence_what_is_wrong(packed: Packed, tmp_path: Path) -> None:
    members = packed.members
    last, middle = members[-1], members[5]
    changed = [(name, b"!" + content[1:] if name == middle[0] else content) for name, content in members]

    assert f"{middle[0]!r} with SHA-256" in refused(tmp_path, archive_of(changed))
    assert f"{last[0]!r}, as SHA256SUMS lists it, found it missing" in refused(tmp_path, archive_of(members[:-1]))
    assert f"{middle[0]!r}, as SHA256SUMS lists it, found it missing" in refused(
        tmp_path, archive_of([member for member in members if member != middle])
    )
    assert f"found {middle[0]!r} twice" in refused(tmp_path, archive_of([*members, middle]))
    assert "found also 'extra'" in refused(tmp_path, archive_of([*members, ("extra", b"")]))
    assert "found '../extra', which cannot be a file in a folder" in refused(
        tmp_path, archive_of([*members, ("../extra", b"")])
    )
    assert "found '/etc/x', which cannot be a file in a folder" in refused(
        tmp_path, archive_of([*members[:4], ("/etc/x", b""), *members[4:]])
    )
    assert "it is no bundle, or was damaged" in refused(tmp_path, b"hello" * 1000)
    assert "ends within or before it" in refused(tmp_path, packed.content[:4000])
    assert "ends within or before it" in refused(tmp_path, b"")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_member_that_is_no_file_is_refused(packed: Packed, tmp_path: Path, kind: bytes) -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in packed.members:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime, entry.size = 0o644, 315532800, len(content)
            if name == "bundle.json":
                entry.type, entry.linkname, entry.size = kind, "/etc/passwd", 0
            archive.addfile(entry, io.BytesIO(content))

    assert "a link, a folder or a device" in refused(tmp_path, written.getvalue())


@pytest.mark.parametrize(
    "change",
    [
        {"mode": 0o755},
        {"mode": 0o4644},
        {"uid": 1000},
        {"gid": 1000},
        {"uname": "root"},
        {"mtime": 0},
        {"linkname": "x"},
    ],
)
def test_header_that_tells_more_than_name_and_size_is_refused(
    packed: Packed, tmp_path: Path, change: dict[str, int | str]
) -> None:
    with tarfile.open(packed.archive) as archive:
        at = archive.getmember("bundle.json").offset
    entry = tarfile.TarInfo.frombuf(packed.content[at : at + 512], "utf-8", "strict")
    for key, value in change.items():
        setattr(entry, key, value)
    block = entry.tobuf(tarfile.USTAR_FORMAT)

    assert "to tell its name and size, found more" in refused(
        tmp_path, packed.content[:at] + block + packed.content[at + 512 :]
    )


def signed_archive(members: dict[str, bytes], sums: bytes) -> bytes:
    return archive_of([(SUMS, sums), (SIGNATURE, KEY.sign(sums)), *members.items()])


def test_signed_list_that_leads_out_of_the_folder_writes_nothing_there(tmp_path: Path) -> None:
    sums = render_sums({"../escaped": "a" * 64})

    assert "within its folder" in refused(tmp_path, signed_archive({"../escaped": b""}, sums))


def test_signed_archive_that_is_neither_bundle_nor_kit_is_refused(packed: Packed, tmp_path: Path) -> None:
    digests = verify(packed.archive, PUBLIC).digests
    only = {"docs/manual/index.md": dict(packed.members)["docs/manual/index.md"]}
    sums = render_sums({name: digests[name] for name in only})

    assert "neither bundle.json nor kit.toml" in refused(tmp_path, signed_archive(only, sums))


def test_bundle_that_names_another_image_than_its_list_is_refused(packed: Packed, tmp_path: Path) -> None:
    digests = verify(packed.archive, PUBLIC).digests
    only = {"bundle.json": dict(packed.members)["bundle.json"]}
    sums = render_sums({name: digests[name] for name in only})

    assert "to name the image in the bundle" in refused(tmp_path, signed_archive(only, sums))


def test_list_and_signature_that_are_too_long_are_not_read(tmp_path: Path) -> None:
    assert "of at most 64 bytes, found 65" in refused(tmp_path, archive_of([(SUMS, b"x"), (SIGNATURE, bytes(65))]))
    assert "of at most 16777216 bytes" in refused(tmp_path, archive_of([(SUMS, bytes((1 << 24) + 1))]))


def test_nothing_is_overwritten(packed: Packed, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    for name in ("there", "link"):
        with pytest.raises(ConfigurationError, match="Expected nothing at"):
            verify(packed.archive, PUBLIC, extract=tmp_path / name)

    assert not (tmp_path / "elsewhere").exists()


def test_nothing_to_verify_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="found nothing"):
        verify(tmp_path / "missing.tar", PUBLIC)


def test_archive_is_read_once_so_that_what_was_checked_is_what_is_written(packed: Packed, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(packed.content,))
    writer.start()

    verify(fifo, PUBLIC, extract=tmp_path / "unpacked")

    writer.join()
    assert files_below(tmp_path / "unpacked") == dict(packed.members)


def test_folder_that_changes_while_it_is_copied_is_refused_or_copied_as_it_was(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify(packed.archive, PUBLIC, extract=tmp_path / "first")
    real = os.fsync

    def tamper(descriptor: int) -> None:
        real(descriptor)
        (tmp_path / "first" / SUMS).write_bytes(b"changed")
        (tmp_path / "first" / "bundle.json").write_bytes(b"changed")

    monkeypatch.setattr(os, "fsync", tamper)

    verify(tmp_path / "first", PUBLIC, extract=tmp_path / "second")

    assert files_below(tmp_path / "second") == dict(packed.members)
