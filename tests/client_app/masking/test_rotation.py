"""No image of a cache is used twice before its turn comes again, whatever happens between noting and using it."""

from __future__ import annotations

import json
import stat
from itertools import pairwise
from pathlib import Path

import pytest

from client_app.masking.rotation import Rotation
from federation.errors import CacheError
from tests.aegis_cache.store.made_up_builds import watch_disk

CACHE, OTHER = "a" * 64, "b" * 64
MANY = 10**6


class Crashed(BaseException):
    """What a killed process does not catch."""


def path_of(folder: Path, hospital_id: str = "north") -> Path:
    return folder / "masking" / f"{hospital_id}.rotation"


def take(folder: Path, hospital_id: str, cache: str, size: int = 1) -> int:
    """Return how many images were used, and note that `size` more are."""
    rotation = Rotation.of(folder, hospital_id)
    used = rotation.used(cache)
    rotation.note(cache, used + size, since=used)
    return used


def test_images_are_counted_whatever_number_is_used_at_a_time(volume: Path) -> None:
    turns = [take(volume, "north", CACHE, size) for size in (3, 1, 5, 2)]

    assert turns == [0, 3, 4, 9]


def test_images_that_another_task_has_used_meanwhile_are_refused_and_counted_once(volume: Path) -> None:
    first, second = Rotation.of(volume, "north"), Rotation.of(volume, "north")
    seen = first.used(CACHE), second.used(CACHE)

    first.note(CACHE, 4, since=seen[0])
    with pytest.raises(CacheError, match="expected 0 used images, found 4: another task"):
        second.note(CACHE, 4, since=seen[1])

    assert second.used(CACHE) == 4


def test_looking_at_the_count_does_not_change_it(volume: Path) -> None:
    take(volume, "north", CACHE, 4)

    assert [Rotation.of(volume, "north").used(CACHE) for _ in range(3)] == [4, 4, 4]


def test_cache_that_is_used_again_goes_on_where_it_stood(volume: Path) -> None:
    for cache in (CACHE, CACHE, OTHER, CACHE):
        take(volume, "north", cache)

    assert (take(volume, "north", CACHE), take(volume, "north", OTHER)) == (3, 1)


def test_another_cache_begins_at_its_first_image(volume: Path) -> None:
    for _ in range(4):
        take(volume, "north", CACHE)

    assert [take(volume, "north", OTHER) for _ in range(3)] == [0, 1, 2]


def test_hospitals_that_share_a_folder_have_counts_of_their_own(volume: Path) -> None:
    for _ in range(4):
        take(volume, "north", CACHE)

    assert take(volume, "south", CACHE) == 0
    assert take(volume, "north", CACHE) == 4


def test_count_is_for_the_hospital_s_eyes_only(volume: Path) -> None:
    take(volume / "new" / "state", "north", CACHE)

    path = path_of(volume / "new" / "state")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_block_is_used_only_after_its_count_is_forced_to_the_disk(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(volume, "north", CACHE)
    done: list[str] = []
    watch_disk(monkeypatch, done.append)

    take(volume, "north", CACHE)

    forced = [number for number, change in enumerate(done) if change.startswith("fsync")]
    moved = next(number for number, change in enumerate(done) if change.startswith("replace"))
    assert min(forced) < moved < max(forced)
    assert done[max(forced)] == "fsync masking"


def crash_at(volume: Path, step: int) -> bool:
    """Kill a process at its `step`-th change of the disk; return whether it got that far before it was done."""
    left = [step]

    def reach(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crashed

    with pytest.MonkeyPatch.context() as patch:
        watch_disk(patch, reach)
        try:
            take(volume, "north", CACHE)
        except Crashed:
            return True
    return False


def test_crash_at_any_change_of_the_disk_skips_a_block_at_most_and_repeats_none(volume: Path) -> None:
    used, crashes = [take(volume, "north", CACHE)], 0

    while crash_at(volume, crashes):
        crashes += 1
        used.append(take(volume, "north", CACHE))

    gaps = [later - earlier for earlier, later in pairwise(used)]
    assert crashes >= 4
    assert set(gaps) == {1, 2}


def test_crash_between_write_and_use_skips_the_block(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_and_crash(path: Path, content: bytes, *, mode: int) -> None:
        path.write_bytes(content)
        raise Crashed

    first = take(volume, "north", CACHE)
    with monkeypatch.context() as patch:
        patch.setattr("client_app.masking.rotation.write_durably", write_and_crash)
        with pytest.raises(Crashed):
            take(volume, "north", CACHE)

    assert (first, take(volume, "north", CACHE)) == (0, 2)


def test_block_is_not_handed_out_when_the_volume_refuses_its_count(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("client_app.masking.rotation.write_durably", refuse)

    with pytest.raises(CacheError, match=r"No space left on device.*mend the volume"):
        take(volume, "north", CACHE)


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"used"',
    b"\xff\xfe",
    *[json.dumps({CACHE: used}).encode() for used in (-1, 1.0, True, "1", None, [1])],
]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_count_is_refused_by_name_with_a_remedy_and_left_alone(volume: Path, content: bytes) -> None:
    path = path_of(volume)
    path.parent.mkdir()
    path.write_bytes(content)

    with pytest.raises(CacheError, match=r"expected counts of used images.*or delete the file") as caught:
        take(volume, "north", CACHE)

    assert str(caught.value).startswith(f"{path}: ")
    assert path.read_bytes() == content


def test_truncated_count_is_refused(volume: Path) -> None:
    take(volume, "north", CACHE)
    whole = path_of(volume).read_bytes()

    for length in range(len(whole)):
        path_of(volume).write_bytes(whole[:length])
        with pytest.raises(CacheError, match="expected counts of used images"):
            take(volume, "north", CACHE)


def test_folder_in_place_of_the_count_is_refused(volume: Path) -> None:
    path_of(volume).mkdir(parents=True)

    with pytest.raises(CacheError, match="expected counts of used images"):
        take(volume, "north", CACHE)


def test_deleted_count_begins_at_the_first_block_as_the_message_says(volume: Path) -> None:
    take(volume, "north", CACHE)
    path_of(volume).unlink()

    assert take(volume, "north", CACHE) == 0
