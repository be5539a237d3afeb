"""A build that is interrupted goes on where it stood, and nothing that it was not asked for happens to a cache."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aegis_cache.store.build import CacheBuild
from aegis_cache.store.build_folder import BuildFolder
from aegis_cache.store.cache import open_cache
from aegis_cache.store.provenance import Provenance
from federation.errors import CacheError
from tests.aegis_cache.store.made_up_builds import (
    GENERATOR,
    PURPOSE,
    append_all,
    content_of,
    draw_batch,
    everything,
    make_cache,
    modes_below,
    names_in,
    plan_build,
    publish,
    watch_disk,
)

EMPTY = draw_batch(0, 0, 0)


def begin(folder: Path, *, resume: bool = False, **changes: Any) -> CacheBuild:
    return CacheBuild.begin(folder, plan_build(**changes), resume=resume)


def leave_unfinished(folder: Path, counts: tuple[int, ...] = (3, 0, 2)) -> None:
    with begin(folder) as build:
        append_all(build, counts=counts)


def test_build_tells_what_it_has(tmp_path: Path) -> None:
    with begin(tmp_path) as build:
        append_all(build)

        images, labels = everything()
        assert [(batch.batch, batch.seed, batch.count) for batch in build.batches] == [
            (0, 100, 3), (1, 101, 0), (2, 102, 2), (3, 103, 4),
        ]  # fmt: skip
        assert [batch.notes for batch in build.batches] == [{"candidates": 5}] * 4
        assert build.accepted_histogram.tolist() == [labels.count(label) for label in range(3)]
        assert build.images().tobytes() == images
        assert build.images().shape == (9, 1, 4, 5)


def test_new_build_has_nothing(tmp_path: Path) -> None:
    with begin(tmp_path) as build:
        assert build.batches == ()
        assert build.accepted_histogram.tolist() == [0, 0, 0]
        assert build.images().shape == (0, 1, 4, 5)


def test_unfinished_build_belongs_to_its_owner_alone_and_is_no_cache(tmp_path: Path) -> None:
    leave_unfinished(tmp_path / "cache")

    assert modes_below(tmp_path / "cache") == {("folder", 0o700), ("file", 0o600)}
    with pytest.raises(CacheError, match="found nothing"):
        open_cache(tmp_path / "cache")


def test_resumed_build_ends_with_the_same_content_as_an_undisturbed_one(tmp_path: Path) -> None:
    leave_unfinished(tmp_path)

    with begin(tmp_path, resume=True) as build:
        assert [batch.count for batch in build.batches] == [3, 0, 2]
        assert build.images().tobytes() == everything(counts=(3, 0, 2))[0]
        assert build.accepted_histogram.sum() == 5
        append_all(build)
        manifest = publish(build)

    assert content_of(open_cache(tmp_path)) == everything()
    assert names_in(tmp_path) == {"manifest.json", *(shard.name for shard in manifest.shards)}


def test_notes_are_the_same_before_and_after_an_interruption(tmp_path: Path) -> None:
    with begin(tmp_path) as build:
        build.append(0, 0, *EMPTY, {"tuple": (1, 2.5), "nested": {"text": "é", 10: None, 9: 1}})
        before = build.batches

    with begin(tmp_path, resume=True) as build:
        assert build.batches == before
        assert before[0].notes == {"tuple": [1, 2.5], "nested": {"text": "é", "10": None, "9": 1}}


def test_resuming_without_an_unfinished_build_begins_one(tmp_path: Path) -> None:
    make_cache(tmp_path, resume=True)

    assert content_of(open_cache(tmp_path)) == everything()


def test_unfinished_build_is_neither_continued_nor_discarded_unasked(tmp_path: Path) -> None:
    leave_unfinished(tmp_path)
    before = names_in(tmp_path)

    with pytest.raises(
        CacheError, match="found one of 5 images: continue it with --resume, or discard it with --fresh"
    ):
        begin(tmp_path)

    assert names_in(tmp_path) == before


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seed": 2}, "expected seed=2, found 1 in"),
        ({"settings": {"filter": "budget"}}, 'expected settings.filter="budget", found "none" in'),
        ({"settings": {}}, 'expected settings.filter=nothing, found "none" in'),
        ({"purpose": PURPOSE.model_copy(update={"modality": "ct"})}, 'purpose.modality="ct", found "chest-xray"'),
        ({"purpose": PURPOSE.model_copy(update={"preprocessing": "2"})}, "purpose.preprocessing="),
        ({"purpose": PURPOSE.model_copy(update={"class_names": ("a", "b")})}, r'purpose.class-names=\["a", "b"\]'),
        ({"generator": GENERATOR.model_copy(update={"digest": "1" * 64})}, "generator.digest="),
        ({"generator": GENERATOR.model_copy(update={"settings": {"steps": 3.0}})}, "settings.steps=3.0, found 3"),
        (
            {"seed": 2, "purpose": PURPOSE.model_copy(update={"modality": "ct"})},
            'purpose.modality="ct", found "chest-xray"; seed=2, found 1',
        ),
    ],
)  # fmt: skip
def test_build_of_another_plan_is_refused_by_the_keys_that_differ(
    tmp_path: Path, changes: dict[str, Any], text: str, resume: bool
) -> None:
    leave_unfinished(tmp_path)
    before = names_in(tmp_path)

    with pytest.raises(CacheError, match=f"{text}.*unfinished build of 5 images there: .*--resume, or .*--fresh"):
        begin(tmp_path, resume=resume, **changes)

    assert names_in(tmp_path) == before
    begin(tmp_path, resume=True).close()


def test_discarded_build_is_gone_and_the_published_cache_stays(tmp_path: Path) -> None:
    manifest = make_cache(tmp_path, seed=7)
    leave_unfinished(tmp_path)

    CacheBuild.discard(tmp_path)

    assert names_in(tmp_path) == {"manifest.json", *(shard.name for shard in manifest.shards)}
    assert content_of(open_cache(tmp_path)) == everything(7)
    begin(tmp_path).close()


def test_discarding_nothing_changes_nothing(tmp_path: Path) -> None:
    make_cache(tmp_path / "cache")

    CacheBuild.discard(tmp_path / "cache")
    CacheBuild.discard(tmp_path / "absent")

    assert content_of(open_cache(tmp_path / "cache")) == everything()
    assert not (tmp_path / "absent").exists()


def test_discarding_takes_shards_that_were_moved_but_never_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begin(tmp_path) as build:
        append_all(build)
        with monkeypatch.context() as patch:
            patch.setattr("aegis_cache.store.build.write_sealed", _refuse)
            with pytest.raises(CacheError, match="found it full"):
                publish(build)
    assert len(list(tmp_path.glob("shard-*.bin"))) == 3

    CacheBuild.discard(tmp_path)

    assert names_in(tmp_path) == set()


def test_nothing_is_deleted_beside_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    make_cache(tmp_path)
    leave_unfinished(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"damaged")
    before = {name for name in names_in(tmp_path) if not name.startswith(".building")}

    CacheBuild.discard(tmp_path)

    assert names_in(tmp_path) == before


def _refuse(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("attempt", [lambda folder: begin(folder, resume=True), CacheBuild.discard])
def test_second_build_in_the_same_folder_is_refused_until_the_first_ends(tmp_path: Path, attempt: Any) -> None:
    with begin(tmp_path) as build:
        build.append(0, 0, *EMPTY, {})

        with pytest.raises(CacheError, match="expected to be the only build there, found another one at work"):
            attempt(tmp_path)

    with begin(tmp_path, resume=True) as build:
        assert len(build.batches) == 1


def test_lock_on_a_file_that_was_deleted_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = fcntl.flock, []

    def delete_first(descriptor: int, how: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            (tmp_path / ".building" / "lock").unlink()
            (tmp_path / ".building").rmdir()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", delete_first)

    with begin(tmp_path), pytest.raises(CacheError, match="only build"):
        BuildFolder(tmp_path)


def test_folder_that_the_last_build_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.open, []

    def remove_first(path: Any, *rest: Any) -> int:
        if Path(path).name == "lock":
            calls.append(path)
            if len(calls) == 1:
                (tmp_path / ".building").rmdir()
        return real(path, *rest)

    monkeypatch.setattr(os, "open", remove_first)

    begin(tmp_path).close()

    assert names_in(tmp_path) == {".building", ".building/lock", ".building/plan.json"}


def test_batches_without_a_plan_are_leftovers_of_a_build_that_ended(tmp_path: Path) -> None:
    leave_unfinished(tmp_path)
    (tmp_path / ".building" / "plan.json").unlink()

    begin(tmp_path).close()

    assert names_in(tmp_path) == {".building", ".building/lock", ".building/plan.json"}


def test_published_manifest_is_returned_as_readers_find_it(tmp_path: Path) -> None:
    with begin(tmp_path) as build:
        append_all(build)
        manifest = build.publish(provenance=Provenance.public(), acceptance={"rates": (1, 2)}, created="now")

    assert manifest == open_cache(tmp_path).manifest
    assert manifest.acceptance == {"rates": [1, 2]}


@pytest.mark.parametrize(
    ("batch", "images", "labels", "text"),
    [
        (1, *EMPTY, "Expected batch=0, the next one, found batch=1"),
        (0, EMPTY[0].astype(np.float32), EMPTY[1], r"Expected uint8 images of shape \(0, 1, 4, 5\), found float32"),
        (0, np.zeros((2, 1, 5, 4), np.uint8), np.zeros(2, np.int64), r"shape \(2, 1, 4, 5\), found uint8 of shape"),
        (0, np.zeros((2, 1, 4, 5), np.uint8), np.zeros(3, np.int64), r"shape \(3, 1, 4, 5\), found"),
        (0, np.zeros((2, 1, 4, 5), np.uint8), np.zeros(2), "Expected integer labels .*found float64"),
        (0, np.zeros((2, 1, 4, 5), np.uint8), np.zeros((2, 1), np.int64), "of one dimension, found int64 of 2"),
        (0, np.zeros((2, 1, 4, 5), np.uint8), np.array([0, 3]), "Expected labels from 0 to 2, found 0 to 3"),
        (0, np.zeros((2, 1, 4, 5), np.uint8), np.array([-1, 0]), "Expected labels from 0 to 2, found -1 to 0"),
    ],
)
def test_batch_that_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, batch: int, images: Any, labels: Any, text: str
) -> None:
    with begin(tmp_path) as build:
        before = names_in(tmp_path)

        with pytest.raises(CacheError, match=text):
            build.append(batch, 0, images, labels, {})

        assert (build.batches, names_in(tmp_path)) == ((), before)


@pytest.mark.parametrize("note", [float("nan"), float("inf"), object()])
def test_notes_that_json_cannot_say_are_refused_before_images_are_written(tmp_path: Path, note: Any) -> None:
    with begin(tmp_path) as build:
        before = names_in(tmp_path)

        with pytest.raises(CacheError, match="Batch: expected texts and finite numbers, found"):
            build.append(0, 0, *draw_batch(1, 0, 2), {"note": note})

        assert names_in(tmp_path) == before


@pytest.mark.parametrize("batch", [0, 2, 4])
def test_batch_out_of_order_is_refused(tmp_path: Path, batch: int) -> None:
    with begin(tmp_path) as build:
        append_all(build, counts=(3, 0, 2))

        with pytest.raises(CacheError, match=f"Expected batch=3, the next one, found batch={batch}"):
            build.append(batch, 0, *EMPTY, {})


def test_labels_of_another_width_and_images_of_another_order_are_stored_as_they_mean(tmp_path: Path) -> None:
    images, labels = draw_batch(1, 0, 4)
    with begin(tmp_path) as build:
        build.append(0, 0, np.asfortranarray(images), labels.astype(">i2"), {})
        publish(build)

    cache = open_cache(tmp_path)

    assert content_of(cache) == (images.tobytes(), labels.tolist())
    assert cache.labels.dtype == np.int64


def test_cache_without_images_is_not_published(tmp_path: Path) -> None:
    with begin(tmp_path) as build:
        build.append(0, 0, *EMPTY, {})

        with pytest.raises(CacheError, match="expected at least one accepted image to publish, found none"):
            publish(build)


@pytest.mark.parametrize("act", [publish, append_all])
def test_build_that_has_ended_takes_nothing_more(tmp_path: Path, act: Any) -> None:
    with begin(tmp_path) as build:
        append_all(build, counts=(3,))
        publish(build)

    with pytest.raises(CacheError, match="expected an open build, found it ended"):
        act(build)


def test_acceptance_that_json_cannot_say_is_refused_before_anything_moves(tmp_path: Path) -> None:
    with begin(tmp_path) as build:
        append_all(build)
        before = names_in(tmp_path)

        with pytest.raises(CacheError, match="Manifest: expected texts and finite numbers"):
            build.publish(provenance=Provenance.public(), acceptance={"ks": float("nan")}, created="now")

        assert names_in(tmp_path) == before


@pytest.mark.parametrize("pattern", ["shard-*.bin", "batch-000000.json", "plan.json"])
@pytest.mark.parametrize("how", ["altered", "truncated", "missing"])
def test_damaged_file_of_an_unfinished_build_is_refused_by_its_name(tmp_path: Path, pattern: str, how: str) -> None:
    leave_unfinished(tmp_path)
    path = sorted((tmp_path / ".building").glob(pattern))[0]
    content = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes(content[:-9] if how == "truncated" else content.replace(content[20:21], b"\x07"))

    if (pattern, how) == ("plan.json", "missing"):
        with begin(tmp_path, resume=True) as build:
            assert build.batches == ()
    else:
        with pytest.raises(CacheError, match=rf"{path.name}: expected .*start the build again with --fresh"):
            begin(tmp_path, resume=True)


def test_plan_of_another_version_is_refused_by_its_name(tmp_path: Path) -> None:
    leave_unfinished(tmp_path)
    (tmp_path / ".building" / "batch-000000.json").rename(tmp_path / ".building" / "plan.json")

    with pytest.raises(CacheError, match=r"plan\.json: expected a BuildPlan, found at '\w+': .*--fresh"):
        begin(tmp_path, resume=True)


def test_files_without_a_record_are_removed_when_a_build_is_resumed(tmp_path: Path) -> None:
    leave_unfinished(tmp_path)
    before = names_in(tmp_path)
    for name in ("shard-0123456789abcdef.bin", ".write-0123456789abcdef.tmp"):
        (tmp_path / ".building" / name).write_bytes(b"stray")

    begin(tmp_path, resume=True).close()

    assert names_in(tmp_path) == before


def test_publication_takes_old_shards_and_leftovers_and_nothing_else(tmp_path: Path) -> None:
    make_cache(tmp_path, seed=7)
    (tmp_path / ".write-0123456789abcdef.tmp").write_bytes(b"left")
    (tmp_path / "README").write_bytes(b"mine")

    manifest = make_cache(tmp_path)

    assert names_in(tmp_path) == {"README", "manifest.json", *(shard.name for shard in manifest.shards)}


def test_shard_that_old_and_new_cache_have_in_common_stays(tmp_path: Path) -> None:
    old = make_cache(tmp_path, counts=(3,))

    new = make_cache(tmp_path)

    assert old.shards[0].name == new.shards[0].name
    assert content_of(open_cache(tmp_path)) == everything()


def test_folder_that_others_may_use_is_taken_only_when_nothing_else_is_in_it(tmp_path: Path) -> None:
    for name in ("empty", "mixed"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    (tmp_path / "mixed" / "thesis.tex").touch()

    begin(tmp_path / "empty").close()
    with pytest.raises(CacheError, match=r"found mode 0755 and 'thesis\.tex' in it: run chmod 700"):
        begin(tmp_path / "mixed")

    assert modes_below(tmp_path / "empty") == {("folder", 0o700), ("file", 0o600)}
    assert (tmp_path / "mixed").stat().st_mode & 0o777 == 0o755


def build_twice(folder: Path) -> None:
    """Resume the build above an older cache and finish it, as often as it takes."""
    with begin(folder, resume=True) as build:
        append_all(build)
        publish(build)


def count_points(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    make_cache(folder, seed=7, counts=(2,))
    points: list[str] = []
    with monkeypatch.context() as patch:
        watch_disk(patch, points.append)
        build_twice(folder)
    return points


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError], ids=["interrupt", "disk full"])
def test_build_stopped_at_any_access_to_the_disk_leaves_a_whole_cache_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    points = count_points(tmp_path / "undisturbed", monkeypatch)
    assert len(points) > 60

    for number, point in enumerate(points):
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)
            make_cache(folder, seed=7, counts=(2,))
        passed: list[str] = []

        def stop(reached: str, passed: list[str] = passed, number: int = number) -> None:
            passed.append(reached)
            if len(passed) == number + 1:
                raise error(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            watch_disk(patch, stop)
            try:
                build_twice(folder)
            except (KeyboardInterrupt, CacheError) as raised:
                assert "found it full" in str(raised) or error is KeyboardInterrupt  # noqa: PT017 - both are right.
        assert content_of(open_cache(folder)) in (everything(7, (2,)), everything()), point
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)
            build_twice(folder)

        manifest = open_cache(folder).manifest
        assert content_of(open_cache(folder)) == everything(), point
        assert names_in(folder) == {"manifest.json", *(shard.name for shard in manifest.shards)}, point
        assert modes_below(folder) == {("folder", 0o700), ("file", 0o600)}


def test_manifest_is_written_after_its_shards_are_durable_and_before_old_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_cache(tmp_path, seed=7, counts=(2,)).shards[0].name
    points: list[str] = []
    with begin(tmp_path) as build:
        append_all(build, counts=(3,))
        watch_disk(monkeypatch, points.append)
        new = publish(build).shards[0].name

    moved, shown, gone = (points.index(point) for point in (f"rename {new}", "fsync .building", f"unlink {old}"))
    replaced = [number for number, point in enumerate(points) if point.startswith("replace .write-")]
    synced = [number for number, point in enumerate(points) if point == f"fsync {tmp_path.name}"]
    assert len(replaced) == 1
    assert moved < synced[0] < shown < replaced[0] < synced[1] < gone < points.index("unlink plan.json")


def test_full_disk_tells_how_much_room_a_batch_needs_and_the_batch_can_be_appended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cache(tmp_path, seed=7)
    images, labels = draw_batch(1, 0, 3)
    with begin(tmp_path) as build:
        before = names_in(tmp_path)
        text = r"shard-\w+\.bin: expected room for 84 bytes on .*: free 84 bytes and run again with --resume"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _refuse)
            with pytest.raises(CacheError, match=text):
                build.append(0, 0, images, labels, {})
        assert names_in(tmp_path) == before
        assert build.batches == ()
        assert content_of(open_cache(tmp_path)) == everything(7)

        build.append(0, 0, images, labels, {})

    with begin(tmp_path, resume=True) as build:
        assert build.images().tobytes() == images.tobytes()


def test_failure_after_publication_says_that_the_cache_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cache(tmp_path, seed=7)
    with begin(tmp_path) as build:
        append_all(build)
        monkeypatch.setattr(os, "rmdir", _refuse)

        with pytest.raises(CacheError, match="the new cache is published"):
            publish(build)

    monkeypatch.undo()
    assert content_of(open_cache(tmp_path)) == everything()
    CacheBuild.discard(tmp_path)
    assert content_of(open_cache(tmp_path)) == everything()
    assert not (tmp_path / ".building").exists()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.EACCES, "expected permission to read and write it, found none: give the folder to the user"),
        (errno.EROFS, "found it read-only: mount it for writing and run again with --resume"),
        (errno.EIO, "found an error of the file system"),
        (errno.EMFILE, "raise `ulimit -n`"),
        (errno.EDQUOT, "found it full: free some and run again with --resume"),
    ],
)
def test_folder_that_cannot_be_made_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, text: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkdir", refuse)

    with pytest.raises(CacheError, match=f"cache: .*{text}"):
        begin(tmp_path / "cache")


def test_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"mine")

    with pytest.raises(CacheError, match="cache: expected"):
        begin(tmp_path / "cache")


def test_plan_file_shows_what_is_built(tmp_path: Path) -> None:
    leave_unfinished(tmp_path)

    content = json.loads((tmp_path / ".building" / "plan.json").read_bytes())

    assert (content["seed"], content["purpose"]["data-set"], content["settings"]) == (1, "scans", {"filter": "none"})
