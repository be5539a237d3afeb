"""Missing, damaged, foreign and outdated files: refused with what to do, and nothing is made anew over them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from client_app.ledger import Ledger
from client_app.ledger.anchor import Anchor
from federation.errors import BudgetExhaustedError, LedgerError
from tests.client_app.ledger.place import Place, request


def release(place: Place, *messages: str) -> None:
    with place.open() as ledger:
        for message in messages:
            ledger.commit(ledger.reserve(request(message)))


def copy_of(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder, folder.with_name(name)))


def restore(copy: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def test_new_ledger_is_readable_by_its_owner_alone(place: Place) -> None:
    place.open().close()

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (place.rows, place.key, place.anchor, place.keys)}

    assert modes == {place.rows: 0o600, place.key: 0o600, place.anchor: 0o600, place.keys: 0o700}
    assert len(place.key.read_bytes()) == 32


def test_birth_forces_each_file_to_disk_before_it_gets_its_name_and_the_folder_after_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}

    def sync(descriptor: int) -> None:
        steps.append(f"force {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        real["fsync"](descriptor)

    def name(source: Path, target: Path) -> None:
        steps.append(f"name {Path(target).name}")
        real["replace"](source, target)

    place.root.joinpath("keys").mkdir(mode=0o700)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", name)
    monkeypatch.setattr(os, "replace", name)

    place.open().close()

    assert steps == [
        f"force {place.root.name}",
        *("force north.key.new", "name north.key", "force keys"),
        *("force north.anchor.new", "name north.anchor", "force keys"),
        *("force north.ledger.new", "name north.ledger", "force volume"),
    ]


def test_two_hospitals_share_folders_but_no_budget(place: Place) -> None:
    south = Place(place.root, "south")
    release(place, "m1")
    release(south, "m1", "m2")

    with place.open() as ledger, south.open() as other:
        assert (ledger.spend("scans", 1e-5).releases, other.spend("scans", 1e-5).releases) == (1, 2)
        assert ledger.ledger_id != other.ledger_id
    assert place.key.read_bytes() != south.key.read_bytes()


def test_missing_ledger_does_not_start_again_at_zero(place: Place) -> None:
    release(place, "m1")
    place.rows.unlink()

    for _ in range(2):
        with pytest.raises(LedgerError, match="3 rows that its anchor has seen, found no file: mount its volume"):
            place.open()

    assert not place.rows.exists()


@pytest.mark.parametrize("lost", [["anchor"], ["anchor", "key"]])
def test_missing_anchor_beside_a_ledger_is_an_error_with_its_remedy(place: Place, lost: list[str]) -> None:
    release(place, "m1")
    before = place.rows.read_bytes()
    for name in lost:
        getattr(place, name).unlink()

    with pytest.raises(LedgerError, match=r"expected the anchor of the ledger .*restore its newest backup"):
        place.open()

    assert place.rows.read_bytes() == before
    assert not place.anchor.exists()


def test_missing_key_is_an_error_and_no_new_one_is_made(place: Place) -> None:
    release(place, "m1")
    place.key.unlink()

    with pytest.raises(LedgerError, match="expected the ledger's key, found none"):
        place.open()

    assert not place.key.exists()


def test_restored_backup_of_the_ledger_is_noticed(place: Place) -> None:
    release(place, "m1")
    backup = copy_of(place.folder, "backup")
    release(place, "m2")
    restore(backup, place.folder)

    with pytest.raises(LedgerError, match="at least the 5 rows that the anchor has seen, found 3: an old copy"):
        place.open()

    assert place.kinds() == ["genesis", "reserve", "commit"]


def test_newest_ledger_can_be_put_back_after_a_wrong_restore(place: Place) -> None:
    release(place, "m1")
    old = copy_of(place.folder, "old")
    release(place, "m2")
    newest = copy_of(place.folder, "newest")
    restore(old, place.folder)
    with pytest.raises(LedgerError):
        place.open()

    restore(newest, place.folder)

    with place.open() as ledger:
        assert ledger.spend("scans", 1e-5).releases == 2


def test_lost_write_ahead_log_is_noticed(place: Place) -> None:
    release(place, "m1")
    with place.open() as ledger:
        ledger.reserve(request("m2"))
        shutil.copyfile(place.rows, place.root / "without-log")
    shutil.copyfile(place.root / "without-log", place.rows)

    with pytest.raises(LedgerError, match="an old copy of the ledger was restored, or its last rows were lost"):
        place.open()


def test_old_anchor_beside_a_newer_ledger_is_noticed(place: Place) -> None:
    release(place, "m1")
    backup = copy_of(place.keys, "backup")
    release(place, "m2")
    restore(backup, place.keys)

    with pytest.raises(LedgerError, match="found 2: an old copy of the key folder was restored"):
        place.open()


def test_one_row_beyond_the_anchor_is_an_interrupted_call_and_counts(place: Place) -> None:
    release(place, "m1")
    backup = copy_of(place.keys, "backup")
    with place.open() as ledger:
        ledger.reserve(request("m2"))
    restore(backup, place.keys)

    with place.open() as ledger:
        assert ledger.spend("scans", 1e-5).releases == 2

    anchor = Anchor(place.anchor, key=place.key.read_bytes(), hospital_id="north")
    assert anchor.position.seq == 4
    anchor.close()


def test_ledger_of_another_hospital_is_refused(place: Place) -> None:
    south = Place(place.root, "south")
    release(place, "m1")
    for mine, theirs in ((place.rows, south.rows), (place.key, south.key), (place.anchor, south.anchor)):
        shutil.copyfile(mine, theirs)
        theirs.chmod(0o600)

    with pytest.raises(LedgerError, match="expected the anchor of hospital 'south' under its key"):
        south.open()


def test_another_ledger_of_the_same_hospital_is_refused(place: Place) -> None:
    elsewhere = Place(place.root / "elsewhere")
    release(place, "m1")
    release(elsewhere, "m1")
    shutil.copyfile(elsewhere.rows, place.rows)

    with pytest.raises(LedgerError, match="was not written under its key"):
        place.open()


def test_another_ledger_under_the_same_key_is_refused(place: Place) -> None:
    elsewhere = Place(place.root / "elsewhere")
    release(place, "m1")
    elsewhere.keys.mkdir(parents=True)
    shutil.copy(place.key, elsewhere.key)
    release(elsewhere, "m1")
    shutil.copyfile(elsewhere.rows, place.rows)

    with pytest.raises(LedgerError, match="the file was replaced by another ledger"):
        place.open()


def test_anchor_of_another_key_is_refused(place: Place) -> None:
    elsewhere = Place(place.root / "elsewhere")
    release(place, "m1")
    release(elsewhere, "m1")
    shutil.copyfile(elsewhere.anchor, place.anchor)

    with pytest.raises(LedgerError, match="found it damaged, changed or foreign"):
        place.open()


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda content: b"", "found an empty file"),
        (lambda content: b"not a database" * 1000, "found it damaged"),
        (lambda content: content[: len(content) // 2], "found"),
        (lambda content: content[:4096], "found"),
        (lambda content: content[:4096] + bytes(4096) + content[8192:], "found"),
    ],
    ids=["empty", "text", "half", "first page", "zeroed page"],
)
def test_damaged_ledger_is_refused_and_left_as_it_is(place: Place, change: Callable[[bytes], bytes], text: str) -> None:
    release(place, *(f"m{number}" for number in range(10)))
    damage(place.rows, change)
    before = place.rows.read_bytes()

    with pytest.raises(LedgerError, match=text):
        place.open()

    assert place.rows.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("anchor", lambda content: b"", "damaged, changed or foreign"),
        ("anchor", lambda content: bytes(len(content)), "damaged, changed or foreign"),
        ("key", lambda content: content[:31], "expected a key of 32 bytes, found 31"),
        ("key", lambda content: bytes(32), "damaged, changed or foreign"),
    ],
)
def test_damaged_key_folder_is_refused(place: Place, name: str, change: Callable[[bytes], bytes], text: str) -> None:
    release(place, "m1")
    damage(getattr(place, name), change)

    with pytest.raises(LedgerError, match=text):
        place.open()


def test_key_that_others_can_read_is_refused(place: Place) -> None:
    release(place, "m1")
    place.key.chmod(0o640)

    with pytest.raises(LedgerError, match="found mode 0640: run chmod 600"):
        place.open()


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("PRAGMA user_version = 2", "expected schema version 1, found 2"),
        ("PRAGMA application_id = 7", "found another kind of database"),
        ("DROP TRIGGER rows_are_not_deleted", "table and triggers, found them changed"),
        ("CREATE TABLE more (x)", "table and triggers, found them changed"),
    ],
)
def test_file_of_another_schema_is_refused(place: Place, statement: str, text: str) -> None:
    release(place, "m1")
    database = sqlite3.connect(place.rows, isolation_level=None)
    database.execute(statement)
    database.close()

    with pytest.raises(LedgerError, match=text):
        place.open()


@pytest.mark.parametrize("hospital_id", ["", "../north", "a b", "x" * 65])
def test_hospital_id_that_is_no_file_name_is_refused(tmp_path: Path, hospital_id: str) -> None:
    with pytest.raises(LedgerError, match="hospital_id"):
        Ledger.open(tmp_path / "a", hospital_id=hospital_id, key_folder=tmp_path / "b")

    assert list(tmp_path.iterdir()) == []


def test_anchor_in_the_folder_of_the_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="Expected the key folder apart from the ledger's"):
        Ledger.open(tmp_path, hospital_id="north", key_folder=tmp_path / ".." / tmp_path.name)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("slot", [0, 1])
def test_torn_write_of_either_anchor_slot_is_survived(place: Place, slot: int) -> None:
    release(place, "m1")
    start = 4096 * slot
    damage(place.anchor, lambda content: content[: start + 40] + os.urandom(60) + content[start + 100 :])

    with place.open() as ledger:
        assert ledger.spend("scans", 1e-5).committed == 1
        ledger.commit(ledger.reserve(request("m2")))
    with place.open() as ledger:
        assert ledger.spend("scans", 1e-5).committed == 2


def test_budget_is_enforced_again_after_every_accident(place: Place) -> None:
    release(place, "m1")
    backup = copy_of(place.folder, "backup")
    release(place, "m2")
    newest = copy_of(place.folder, "newest")
    restore(backup, place.folder)
    with pytest.raises(LedgerError):
        place.open()
    restore(newest, place.folder)

    with place.open() as ledger, pytest.raises(BudgetExhaustedError, match=r"spent=0\.4"):
        ledger.reserve(request("m3", cap=0.5))
