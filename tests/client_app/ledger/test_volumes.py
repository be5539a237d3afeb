"""Volumes that are full, read-only, forbidden or failing: a clear error, nothing released, nothing lost."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from client_app.ledger import Ledger
from federation.accounting.events import History
from federation.errors import LedgerError
from tests.client_app.ledger.place import FIFTH, Place, request

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounting needs root")


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    tried = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False)
    if tried.returncode:
        pytest.skip("this container may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def without_rights(*folders: Path) -> Iterator[None]:
    """Take the right to write to `folders` from this process, which a superuser must step down for."""
    root = os.geteuid() == 0
    for folder in folders:
        folder.chmod(0o555)
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for folder in folders:
            folder.chmod(0o700)


def fill(ledger: Ledger) -> int:
    """Reserve until the volume refuses, and return how many reservations were acknowledged."""
    acknowledged: list[str] = []
    with pytest.raises(LedgerError, match=r"found (it full|an error of the file system).* Nothing was released"):
        reserve_for_ever(ledger, acknowledged)
    return len(acknowledged)


def reserve_for_ever(ledger: Ledger, acknowledged: list[str]) -> None:
    while True:
        message = f"m{len(acknowledged)}"
        ledger.reserve(request(message, cap=1e6))
        acknowledged.append(message)


def require_only_whole_rows(place: Place, acknowledged: int) -> None:
    """Every acknowledged reservation is there; one more may be, and counts as spent."""
    with place.open() as ledger:
        spend = ledger.spend("scans", 1e-5)
        assert spend.releases in (acknowledged, acknowledged + 1)
        assert spend.history == History.of([FIFTH] * spend.releases)
        ledger.commit(ledger.reserve(request("after", cap=1e6)))


@as_root
def test_full_volume_loses_no_acknowledged_reservation(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with mounted(place.folder, "size=512k"):
        ledger = place.open()
        acknowledged = fill(ledger)

        with pytest.raises(LedgerError, match="found it closed or broken off: open it again"):
            ledger.reserve(request("more"))

        ledger.close()
        subprocess.run(["mount", "-o", "remount,size=4m", str(place.folder)], check=True)
        require_only_whole_rows(place, acknowledged)


def test_file_size_limit_loses_no_acknowledged_reservation(place: Place) -> None:
    ledger = place.open()
    with largest_file(60_000):
        acknowledged = fill(ledger)
    ledger.close()

    assert acknowledged > 3
    require_only_whole_rows(place, acknowledged)


def test_database_that_may_not_grow_says_that_its_volume_is_full(place: Place) -> None:
    ledger = place.open()
    (pages,) = ledger._rows._database.execute("PRAGMA page_count").fetchone()
    ledger._rows._database.execute(f"PRAGMA max_page_count = {pages}")

    acknowledged = fill(ledger)

    ledger.close()
    require_only_whole_rows(place, acknowledged)


@as_root
def test_no_ledger_begins_on_a_full_volume(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with mounted(place.folder, "size=8k"):
        for _ in range(2):
            with pytest.raises(LedgerError, match="found it full"):
                place.open()
        assert not place.rows.exists()
        subprocess.run(["mount", "-o", "remount,size=1m", str(place.folder)], check=True)

        with place.open() as ledger:
            assert ledger.spend("scans", 1e-5).releases == 0


@as_root
@pytest.mark.parametrize("volume", ["folder", "keys"])
def test_read_only_volume_is_refused(tmp_path: Path, volume: str) -> None:
    place = Place(tmp_path)
    folder = getattr(place, volume)
    with mounted(folder, "size=1m"):
        with place.open() as ledger:
            ledger.commit(ledger.reserve(request("m1")))
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)

        with pytest.raises(LedgerError, match="found it read-only: mount it for writing"):
            place.open()

        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        with place.open() as ledger:
            assert ledger.spend("scans", 1e-5).committed == 1


def test_folder_without_permission_is_refused(place: Place) -> None:
    place.folder.mkdir()
    place.root.chmod(0o755)

    with without_rights(place.folder), pytest.raises(LedgerError, match="expected permission to read and write it"):
        place.open()

    assert not place.rows.exists()
    assert not place.anchor.exists()


def test_ledger_of_another_user_is_refused_and_kept(place: Place) -> None:
    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("m1")))
    before = place.raw_rows()
    place.root.chmod(0o755)

    with without_rights(place.folder, place.keys), pytest.raises(LedgerError, match="expected permission"):
        place.open()

    assert place.raw_rows() == before


@pytest.mark.parametrize(
    ("step", "number", "text"),
    [
        ("fdatasync", errno.EIO, "found an error of the file system"),
        ("pwrite", errno.ENOSPC, "found it full"),
        ("pwrite", errno.EROFS, "found it read-only"),
    ],
)
def test_anchor_that_cannot_be_written_leaves_the_reservation_spent_and_the_ledger_closed(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: str, number: int, text: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    ledger = place.open()
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(LedgerError, match=rf"north\.anchor: .*{text}.*Nothing was released"):
            ledger.reserve(request("m1"))

    with pytest.raises(LedgerError, match="open it again"):
        ledger.reserve(request("m2"))
    ledger.close()
    with place.open() as again:
        assert again.spend("scans", 1e-5).releases == 1
        assert again.reserve(request("m1")).taken_up


def test_short_write_of_the_anchor_is_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = place.open()
    real = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda descriptor, content, offset: real(descriptor, content[:50], offset))
        with pytest.raises(LedgerError, match="expected room for"):
            ledger.reserve(request("m1"))
    ledger.close()

    with place.open() as again:
        assert again.spend("scans", 1e-5).releases == 1


def test_interrupt_in_the_middle_of_a_row_closes_the_ledger_until_it_is_opened_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    ledger = place.open()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ledger.reserve(request("m1"))

    with pytest.raises(LedgerError, match="open it again"):
        ledger.spend("scans", 1e-5)
    ledger.close()
    with place.open() as again:
        assert again.spend("scans", 1e-5).releases == 1
