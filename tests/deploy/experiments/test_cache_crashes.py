"""Builds of a cache that are killed lose no image and leave no half cache, and the matrix would see it if they did."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aegis_cache.store.build import CacheBuild
from aegis_cache.store.cache import open_cache
from deploy.experiments.cache_crashes import Death, Matrix, fingerprint, list_files, measure_cache_crashes, run_victim
from deploy.experiments.cache_victim import COUNTS, LIVE, build, draw_batch, make_plan
from deploy.experiments.cells import Result

DEATH = Death(killed=True, point="fsync temporary", accepted=32, accesses=0, lasted_s=0.1)


def require_a_clean_toll(toll: Result) -> None:
    assert toll["faults"] == []
    assert (toll["lost_images"], toll["corrupt_caches"], toll["differing"]) == (0, 0, 0)
    assert sum(toll["points"].values()) == toll["kills"]


def test_few_builds_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    toll = measure_cache_crashes({"kills": 3, "seed": 0}, tmp_path)

    require_a_clean_toll(toll)
    assert toll["kills"] >= 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_hundreds_of_builds_killed_at_every_access_to_the_disk_lose_nothing(tmp_path: Path) -> None:
    toll = measure_cache_crashes({"kills": 200, "seed": 1}, tmp_path)

    require_a_clean_toll(toll)
    assert toll["kills"] >= 200
    assert toll["while_resuming"] > 10
    assert {"random moment", "torn temporary", "replace manifest", "rename shard", "unlink plan"} <= set(toll["points"])


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return Matrix(tmp_path_factory.mktemp("matrix"), seed=0)


@pytest.fixture
def struck(matrix: Matrix, tmp_path: Path) -> Path:
    """Return the folder of a build that was ended after three batches with 32 images, above the old cache."""
    folder = tmp_path / "struck"
    shutil.copytree(matrix._old, folder)
    with CacheBuild.begin(folder, make_plan(2), resume=True) as going:
        for batch in range(3):
            going.append(batch, batch, *draw_batch(2, batch), {"candidates": COUNTS[batch]})
    return folder


def examined(matrix: Matrix, folder: Path, death: Death = DEATH) -> tuple[int, int, int, int]:
    """Return lost images, corrupt caches, differing ends and faults that are found in `folder`."""
    before = replace(matrix.toll)
    faults = len(before.faults)
    matrix.examine(folder, death)
    matrix.finish(folder, death)
    now = matrix.toll
    return (
        now.lost_images - before.lost_images,
        now.corrupt_caches - before.corrupt_caches,
        now.differing - before.differing,
        len(now.faults) - faults,
    )


def test_examination_finds_nothing_where_nothing_is_wrong(matrix: Matrix, struck: Path) -> None:
    assert examined(matrix, struck) == (0, 0, 0, 0)


def test_examination_sees_images_that_are_lost(matrix: Matrix, struck: Path) -> None:
    (struck / ".building" / "batch-000002.json").unlink()

    assert examined(matrix, struck) == (24, 0, 0, 0)


def test_examination_sees_a_cache_that_is_broken(matrix: Matrix, struck: Path) -> None:
    next(struck.glob("shard-*.bin")).unlink()

    assert examined(matrix, struck) == (0, 1, 0, 0)


def test_examination_sees_a_build_that_cannot_go_on(matrix: Matrix, struck: Path) -> None:
    next((struck / ".building").glob("shard-*.bin")).write_bytes(b"")

    assert examined(matrix, struck) == (32, 0, 1, 2)


def test_examination_sees_leftovers_and_other_permissions(matrix: Matrix, struck: Path) -> None:
    (struck / "left.tmp").touch()

    assert examined(matrix, struck) == (0, 0, 1, 0)


def test_images_of_a_published_cache_are_not_lost(matrix: Matrix, struck: Path) -> None:
    build(struck, 2, lambda _: None)

    assert examined(matrix, struck, replace(DEATH, accepted=sum(COUNTS))) == (0, 0, 0, 0)


def test_victim_dies_where_it_is_told_to_and_says_what_is_durable(matrix: Matrix, tmp_path: Path) -> None:
    folder = shutil.copytree(matrix._old, tmp_path / "cache")
    last = matrix._unbroken.accesses - 1

    death = run_victim(folder, last)

    assert (death.killed, death.point, death.accepted) == (True, "fsync folder", sum(COUNTS))
    assert fingerprint(folder) != fingerprint(matrix._old)


def test_victim_that_lives_makes_the_cache_that_its_seed_says(tmp_path: Path) -> None:
    death = run_victim(tmp_path / "cache", LIVE)

    images = b"".join(draw_batch(2, batch)[0].tobytes() for batch in range(len(COUNTS)))
    cache = open_cache(tmp_path / "cache")
    assert (death.killed, death.accepted) == (False, sum(COUNTS))
    assert cache.take(range(len(cache))).tobytes() == images
    assert {mode for mode, _ in list_files(tmp_path / "cache").values()} == {0o600}
