"""A published cache is read as it was built, or refused by the name of the file that is not as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aegis_cache.store.build import CacheBuild
from aegis_cache.store.cache import open_cache, read_manifest
from aegis_cache.store.manifest import Manifest
from aegis_cache.store.sealed_file import encode_sealed
from aegis_cache.store.shard import name_shard, open_shard
from federation.errors import CacheError
from tests.aegis_cache.store.made_up_builds import (
    COUNTS,
    PURPOSE,
    content_of,
    everything,
    make_cache,
    modes_below,
    names_in,
    plan_build,
)

ROOT = Path(__file__).parents[3]
relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rewrite(folder: Path, manifest: Manifest, **changes: Any) -> None:
    """Publish another manifest as somebody does who can write everything."""
    changed = Manifest.model_validate({**manifest.model_dump(), **changes})
    (folder / "manifest.json").write_bytes(encode_sealed(changed))


def test_cache_holds_what_was_appended_in_order_and_says_so(tmp_path: Path) -> None:
    manifest = make_cache(tmp_path)

    cache = open_cache(tmp_path, expected=PURPOSE)

    assert content_of(cache) == everything()
    assert len(cache) == sum(COUNTS) == cache.manifest.images
    assert cache.manifest == manifest
    assert manifest.label_histogram == tuple(np.bincount(everything()[1], minlength=3))
    found = [(shard.batch, shard.seed, shard.images) for shard in manifest.shards]
    assert found == [(0, 100, 3), (2, 102, 2), (3, 103, 4)]
    assert manifest.acceptance == {"rate": 0.5}
    assert (manifest.purpose, manifest.generator, manifest.seed) == (PURPOSE, plan_build().generator, 1)


def test_shard_is_its_labels_in_64_bits_and_its_images_behind_them(tmp_path: Path) -> None:
    manifest = make_cache(tmp_path, counts=(2,))
    images, labels = everything(counts=(2,))

    content = (tmp_path / manifest.shards[0].name).read_bytes()

    assert content == b"".join(label.to_bytes(8, "little") for label in labels) + images


def test_images_and_labels_of_an_open_cache_cannot_be_changed(tmp_path: Path) -> None:
    make_cache(tmp_path)

    cache = open_cache(tmp_path)

    assert not cache.labels.flags.writeable
    assert not any(shard.images.flags.writeable or shard.labels.flags.writeable for shard in cache.shards)


@relaxed
@given(indices=st.lists(st.integers(0, sum(COUNTS) - 1), max_size=30))
def test_taken_images_are_those_at_the_indices(tmp_path: Path, indices: list[int]) -> None:
    if not (tmp_path / "manifest.json").exists():
        make_cache(tmp_path)
    everything_there = np.frombuffer(everything()[0], dtype=np.uint8).reshape(-1, *PURPOSE.shape)

    taken = open_cache(tmp_path).take(indices)

    assert taken.dtype == np.uint8
    assert taken.shape == (len(indices), *PURPOSE.shape)
    assert np.array_equal(taken, everything_there[np.array(indices, dtype=int)])


@pytest.mark.parametrize("index", [-1, sum(COUNTS)])
def test_index_outside_is_refused(tmp_path: Path, index: int) -> None:
    make_cache(tmp_path)
    cache = open_cache(tmp_path)

    with pytest.raises(IndexError, match=rf"Expected indices from 0 to 8, found .*{index}"):
        cache.take([0, index])


def test_everything_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    make_cache(tmp_path / "caches" / "north")

    assert modes_below(tmp_path / "caches" / "north") == {("folder", 0o700), ("file", 0o600)}
    assert len(names_in(tmp_path / "caches" / "north")) == 4


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: path.unlink(), "expected it to be there, found nothing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), r"expected \d+ bytes, found \d+"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\0"), r"expected \d+ bytes, found \d+"),
        (lambda path: path.write_bytes(b""), r"expected \d+ bytes, found 0"),
        (
            lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
            "expected sha256 .*so it was altered",
        ),
        (lambda path: (path.unlink(), path.mkdir()), "expected a file, found a folder"),
    ],
    ids=["missing", "truncated", "longer", "empty", "altered", "folder"],
)
def test_damaged_shard_is_refused_by_its_name(tmp_path: Path, number: int, damage: Any, text: str) -> None:
    shard = make_cache(tmp_path).shards[number]
    path = tmp_path / shard.name

    damage(path)

    with pytest.raises(CacheError, match=f"{shard.name}: {text}.*restore the cache from a backup, or build it again"):
        open_cache(tmp_path)


@relaxed
@given(where=st.floats(0, 1, exclude_max=True), what=st.integers(1, 255), data=st.data())
def test_any_changed_byte_of_any_file_is_refused_by_the_name_of_the_file(
    tmp_path: Path, where: float, what: int, data: st.DataObject
) -> None:
    if not (tmp_path / "manifest.json").exists():
        make_cache(tmp_path)
    before = open_cache(tmp_path)
    path = data.draw(st.sampled_from(sorted(tmp_path.iterdir())))
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= what

    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        found = open_cache(tmp_path)
    except CacheError as error:
        assert path.name in str(error)  # noqa: PT017 - either outcome is right.
    else:
        assert path.name == "manifest.json"
        assert found.manifest == before.manifest
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"nonsense", b'{"seal": 1', b"\xff\xfe", b"[" * 100_000])
def test_file_that_is_no_manifest_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)

    with pytest.raises(CacheError, match=r"manifest\.json: expected .*found (none|it altered)"):
        open_cache(tmp_path)


def test_changed_value_in_the_manifest_is_refused(tmp_path: Path) -> None:
    make_cache(tmp_path)
    path = tmp_path / "manifest.json"
    content = json.loads(path.read_bytes())
    content["provenance"]["source"] = "dp"
    path.write_text(json.dumps(content), encoding="utf-8")

    with pytest.raises(CacheError, match=r"manifest\.json: expected it as it was written, found it altered"):
        open_cache(tmp_path)


def test_folder_without_a_cache_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(
        CacheError, match=r"manifest\.json: expected it to be there, found nothing: .*aegis cache build"
    ):
        open_cache(tmp_path)


def test_other_format_is_refused(tmp_path: Path) -> None:
    rewrite(tmp_path, make_cache(tmp_path), format="aegis-cache-2")

    with pytest.raises(CacheError, match="expected format 'aegis-cache-1', found 'aegis-cache-2'"):
        open_cache(tmp_path)


def test_manifest_of_the_right_format_with_other_fields_is_refused(tmp_path: Path) -> None:
    class Other(Manifest):
        hidden: int = 3

    manifest = make_cache(tmp_path)
    (tmp_path / "manifest.json").write_bytes(encode_sealed(Other.model_validate(manifest.model_dump())))

    with pytest.raises(CacheError, match=r"manifest\.json: expected a Manifest, found at 'hidden'"):
        read_manifest(tmp_path)


def test_histogram_that_is_not_that_of_the_labels_is_refused(tmp_path: Path) -> None:
    rewrite(tmp_path, make_cache(tmp_path), label_histogram=(9, 0, 0))

    with pytest.raises(CacheError, match=r"expected label-histogram=\[.*\] as the labels have it, found \[9, 0, 0\]"):
        open_cache(tmp_path)


def test_shard_under_a_name_that_is_not_its_digest_is_refused(tmp_path: Path) -> None:
    manifest = make_cache(tmp_path / "cache")
    outside = "../" + manifest.shards[0].name
    (tmp_path / "cache" / manifest.shards[0].name).rename(tmp_path / manifest.shards[0].name)
    moved = manifest.shards[0].model_copy(update={"name": outside})
    rewrite(tmp_path / "cache", manifest, shards=(moved, *manifest.shards[1:]))

    with pytest.raises(CacheError, match=f"expected the name {manifest.shards[0].name} of its digest"):
        open_cache(tmp_path / "cache")


def test_labels_without_a_class_are_refused(tmp_path: Path) -> None:
    manifest = make_cache(tmp_path)
    purpose = manifest.purpose.model_copy(update={"class_names": ("normal",)})
    rewrite(tmp_path, manifest, purpose=purpose)

    with pytest.raises(CacheError, match=r"shard-\w+\.bin: expected labels from 0 to 0, found"):
        open_cache(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("hospital_id", "south", "hospital-id='south', found 'north'"),
        ("data_set", "other", "data-set='other', found 'scans'"),
        ("modality", "ct", "modality='ct', found 'chest-xray'"),
        ("class_names", ("pneumonia", "normal", "other"), "class-names=.*'pneumonia', 'normal'.* found"),
        ("channels", 3, "channels=3, found 1"),
        ("height", 8, "height=8, found 4"),
        ("width", 8, "width=8, found 5"),
        ("preprocessing", "fit-square-2", "preprocessing='fit-square-2', found 'fit-square-1'"),
    ],
)
def test_cache_for_another_purpose_is_refused_by_the_key_that_differs(
    tmp_path: Path, field: str, value: Any, text: str
) -> None:
    make_cache(tmp_path)

    with pytest.raises(CacheError, match=f"expected a cache with {text}"):
        open_cache(tmp_path, expected=PURPOSE.model_copy(update={field: value}))


def test_open_cache_outlives_its_replacement(tmp_path: Path) -> None:
    make_cache(tmp_path, seed=1)
    cache = open_cache(tmp_path)

    make_cache(tmp_path, seed=2)

    assert content_of(cache) == everything(1)
    assert content_of(open_cache(tmp_path)) == everything(2)


def test_cache_that_is_replaced_while_it_is_opened_is_seen_as_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cache(tmp_path, seed=1)
    calls = []

    def replace_first(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            make_cache(tmp_path, seed=2)
        return open_shard(*arguments, **options)

    monkeypatch.setattr("aegis_cache.store.cache.open_shard", replace_first)

    cache = open_cache(tmp_path)

    assert content_of(cache) == everything(2)


def test_batches_with_the_same_images_share_a_file(tmp_path: Path) -> None:
    images, labels = np.zeros((2, *PURPOSE.shape), np.uint8), np.array([0, 1])
    with CacheBuild.begin(tmp_path, plan_build(), resume=False) as build:
        for batch in range(2):
            build.append(batch, batch, images, labels, {})
        build.publish(provenance=plan_build().generator.provenance, acceptance={}, created="now")

    cache = open_cache(tmp_path)

    assert cache.labels.tolist() == [0, 1, 0, 1]
    assert len(names_in(tmp_path)) == 2


def test_name_of_a_shard_is_the_start_of_its_digest() -> None:
    assert name_shard("0123456789abcdef" * 4) == "shard-0123456789abcdef.bin"


def test_store_needs_no_generator_and_no_torch() -> None:
    modules = sorted(path.stem for path in (ROOT / "aegis_cache" / "store").glob("[!_]*.py"))
    block = "".join(f"sys.modules[{name!r}] = None; " for name in ("torch", "diffusers", "transformers"))
    program = f"import sys; {block}" + "; ".join(f"import aegis_cache.store.{module}" for module in modules)

    finished = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr
    assert {"build", "cache", "shard"} <= set(modules)
