"""The order of the steps is what survives a crash, so these tests watch the order and break each step in turn."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.durable import Piece, write_durably


def test_content_is_written_and_no_other_file_remains(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"

    write_durably(path, b"\x00weights\xff")

    assert path.read_bytes() == b"\x00weights\xff"
    assert list(tmp_path.iterdir()) == [path]


def test_pieces_are_written_one_behind_the_other(tmp_path: Path) -> None:
    pieces: list[Piece] = [b"head", memoryview(b"body"), b""]

    write_durably(tmp_path / "model.bin", iter(pieces))

    assert (tmp_path / "model.bin").read_bytes() == b"headbody"


def test_memory_is_written_as_it_lies(tmp_path: Path) -> None:
    write_durably(tmp_path / "model.bin", memoryview(b"body"))

    assert (tmp_path / "model.bin").read_bytes() == b"body"


def test_old_content_is_replaced_even_when_the_new_one_is_shorter(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_bytes(b"a long old content")

    write_durably(path, b"new")

    assert path.read_bytes() == b"new"


def test_file_is_forced_to_disk_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    path = tmp_path / "model.bin"
    real_sync, real_replace = os.fsync, Path.replace

    def watched_sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        steps.append("folder" if stat.S_ISDIR(status.st_mode) else f"file of {status.st_size} bytes")
        real_sync(descriptor)

    def watched_replace(source: Path, target: Path) -> Path:
        steps.append(f"rename within {source.parent == target.parent}")
        return real_replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(Path, "replace", watched_replace)

    write_durably(path, b"12345")

    assert steps == ["file of 5 bytes", "rename within True", "folder"]


@pytest.mark.parametrize(("owner", "step"), [(os, "fsync"), (Path, "replace")])
def test_failing_step_leaves_the_old_content_and_no_temporary_file(
    owner: object, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, step, fail)

    with pytest.raises(OSError, match="No space left"):
        write_durably(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)

    with pytest.raises(KeyboardInterrupt):
        write_durably(tmp_path / "model.bin", b"new")

    assert list(tmp_path.iterdir()) == []


def test_missing_folder_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_durably(tmp_path / "absent" / "model.bin", b"new")

    assert list(tmp_path.iterdir()) == []


def test_folder_at_the_path_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "model.bin").mkdir()

    with pytest.raises(IsADirectoryError):
        write_durably(tmp_path / "model.bin", b"new")

    assert [entry.name for entry in tmp_path.iterdir()] == ["model.bin"]


def test_symbolic_link_is_replaced_and_its_target_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"keep me")
    link = tmp_path / "link"
    link.symlink_to(target)

    write_durably(link, b"new")

    assert not link.is_symlink()
    assert link.read_bytes() == b"new"
    assert target.read_bytes() == b"keep me"


@pytest.mark.parametrize(
    ("mask", "options", "expected"),
    [(0o022, {}, 0o644), (0o077, {}, 0o600), (0o022, {"mode": 0o600}, 0o600), (0o022, {"mode": 0o660}, 0o640)],
)
def test_permissions_are_the_mode_less_the_umask(
    mask: int, options: dict[str, int], expected: int, tmp_path: Path
) -> None:
    previous = os.umask(mask)
    try:
        write_durably(tmp_path / "report.html", b"new", **options)
    finally:
        os.umask(previous)

    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) == expected


def test_private_file_is_private_before_it_has_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.bin"
    path.write_bytes(b"old")
    path.chmod(0o644)
    modes: list[int] = []
    real_sync = os.fsync

    def watched_sync(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        real_sync(descriptor)

    def pieces() -> Iterator[Piece]:
        (temporary,) = tmp_path.glob(".write-*")
        modes.append(stat.S_IMODE(temporary.stat().st_mode))
        yield b"new"

    monkeypatch.setattr(os, "fsync", watched_sync)

    write_durably(path, pieces(), mode=0o600)

    assert modes[:2] == [0o600, 0o600]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
