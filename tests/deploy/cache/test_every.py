"""`aegis cache build --every` and `--generator phantom`: caches for a whole simulation, in one command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aegis_cache.generation.phantom import PhantomGenerator
from aegis_cache.store.build_folder import BuildFolder
from aegis_cache.store.cache import open_cache
from deploy.cache import building, generators
from deploy.cli import main
from federation.errors import ConfigurationError, GenerationError

PHANTOM = ["--generator", "phantom", "--filter", "none", "--labels", "balanced", "--unchecked", "--images", "40"]
DATA = ["--set", "data.phantom-examples=600", "--set", "data.phantom-classes=3"]
THREE = ["--every", "--hospitals", "3"]
FITTED = ["--generator", "gaussian", "--labels", "as-train", "--set", "data.partition=iid"]
NAMES = ["hospital-000", "hospital-001", "hospital-002"]


def build(folder: Path, *arguments: object) -> tuple[int, str]:
    given = ["cache", "build", str(folder), *PHANTOM, *DATA, *map(str, arguments)]
    found = CliRunner().invoke(main, given)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, " ".join(found.output.split())


def write_policy(folder: Path) -> Path:
    images = np.random.default_rng(0).integers(0, 256, size=(100, 28, 28), dtype=np.uint8)
    np.savez(folder / "images.npz", images=images, labels=np.arange(100) % 2)
    path = folder / "site.toml"
    path.write_text(
        f'hospital-id = "charite"\nstate-dir = "{folder}/state"\nkeys-dir = "{folder}/keys"\n'
        f'[data]\nid = "chest-2026"\nname = "npz"\nroot = "{folder}/images.npz"\n'
    )
    return path


def fail_at(monkeypatch: pytest.MonkeyPatch, *failing: str, error: Exception) -> None:
    """Let the generator of some hospitals fail, as a full disk or missing weights would."""

    def make(request, permitted, folder, **rest):
        if permitted.hospital_id in failing:
            raise error
        return generators.make_generator(request, permitted, folder, **rest)

    monkeypatch.setattr(building, "make_generator", make)


def count_batches(monkeypatch: pytest.MonkeyPatch, *, fail_after: int = 1000) -> list[str]:
    """Return a list that names, as batches are drawn, the hospital of each; after so many the generator fails."""
    drawn: list[str] = []
    generate = PhantomGenerator.generate

    def draw(self, labels, n, generator):
        if len(drawn) == fail_after:
            raise GenerationError("Expected memory, found none.")
        drawn.append(self.identity.settings["stream"])
        return generate(self, labels, n, generator)

    monkeypatch.setattr(PhantomGenerator, "generate", draw)
    return drawn


def leave_unfinished(folder: Path, *arguments: object) -> None:
    """Break a build into `folder` off after its first batch of eight images."""
    with pytest.MonkeyPatch.context() as patch:
        count_batches(patch, fail_after=1)
        assert build(folder, "--batch-size", "8", *arguments)[0] == 1
    assert BuildFolder.exists_in(folder)


def test_phantom_caches_are_public_and_have_the_classes_of_the_configuration(tmp_path: Path) -> None:
    code, output = build(tmp_path / "cache")

    assert code == 0, output
    manifest = open_cache(tmp_path / "cache").manifest
    assert manifest.provenance.source.value == manifest.generator.provenance.source.value == "public"
    assert manifest.generator.settings == {"classes": 3, "difficulty": 0.4, "stream": "hospital-000"}
    assert manifest.label_histogram == (14, 13, 13)


def test_phantoms_that_were_compared_with_private_images_do_not_count_as_public(tmp_path: Path) -> None:
    code, output = build(tmp_path / "cache", "--labels", "as-train", "--largest-ks", "1", "--least-overlap", "0")

    assert code == 0, output
    assert open_cache(tmp_path / "cache").manifest.provenance.source.value == "private-filtered"


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_phantoms_are_refused_for_other_data(tmp_path: Path, dry: list[str]) -> None:
    write_policy(tmp_path)
    other = ["--set", "data.name=npz", "--set", f"data.root={tmp_path / 'images.npz'}"]

    code, output = build(tmp_path / "cache", *other, *dry)

    assert code == 2
    assert "data.name='phantom' with data.features='none' for --generator phantom, found data.name='npz'" in output
    assert not (tmp_path / "cache").exists()


def test_phantoms_are_refused_for_wavelet_features(tmp_path: Path) -> None:
    code, output = build(tmp_path / "cache", "--set", "data.features=wavelet")

    assert code == 2
    assert "data.features='wavelet'" in output


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_phantoms_are_refused_for_a_hospital_with_a_policy(tmp_path: Path, dry: list[str]) -> None:
    given = ["cache", "build", tmp_path / "cache", *PHANTOM, "--policy", write_policy(tmp_path), *dry]

    found = CliRunner().invoke(main, list(map(str, given)))

    assert found.exit_code == 2
    said = " ".join(found.output.split())
    assert "Expected a simulated hospital for --generator phantom, found 'charite' with a site policy" in said
    assert not (tmp_path / "cache").exists()


def test_every_hospital_gets_its_cache_in_the_folder_of_its_name(tmp_path: Path) -> None:
    code, output = build(tmp_path, *THREE)

    assert code == 0, output
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
    found = [open_cache(tmp_path / name) for name in NAMES]
    assert [cache.manifest.purpose.hospital_id for cache in found] == NAMES
    assert len({cache.digest for cache in found}) == 3
    for name in NAMES:
        assert f"{name}: built, 40 images by phantom, provenance public" in output
    assert "3 of 3 hospitals have their caches." in output


def test_a_hospital_gets_the_same_cache_alone_as_with_all_others(tmp_path: Path) -> None:
    build(tmp_path / "all", *THREE)
    build(tmp_path / "alone", "--hospitals", "3", "--hospital", "1")

    assert open_cache(tmp_path / "alone").digest == open_cache(tmp_path / "all" / "hospital-001").digest


def test_every_prints_one_json_list_and_nothing_else(tmp_path: Path) -> None:
    code, output = build(tmp_path, *THREE, "--json")

    assert code == 0
    assert json.loads(output) == [
        {"hospital-id": name, "status": "built", "images": 40, "provenance": "public"} for name in NAMES
    ]


@pytest.mark.parametrize("arguments", [["--policy", "site.toml"], ["--sheet", "sheet.png"], ["--hospital", "1"]])
def test_every_is_refused_together_with_options_about_one_hospital(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    code, output = build(tmp_path / "caches", *THREE, *arguments)

    assert code == 2
    assert f"Expected --every alone, found it with {arguments[0]}" in output
    assert not (tmp_path / "caches").exists()


def test_resume_keeps_sound_caches_goes_on_with_unfinished_ones_and_builds_missing_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / NAMES[0], "--hospitals", "3")
    kept = open_cache(tmp_path / NAMES[0]).manifest
    leave_unfinished(tmp_path / NAMES[1], "--hospitals", "3", "--hospital", "1")
    drawn = count_batches(monkeypatch)

    code, output = build(tmp_path, *THREE, "--resume", "--batch-size", "8")

    assert code == 0, output
    assert f"{NAMES[0]}: kept, 40 images" in output
    assert f"{NAMES[1]}: built, 40 images" in output
    assert open_cache(tmp_path / NAMES[0]).manifest == kept
    assert drawn == [NAMES[1]] * 4 + [NAMES[2]] * 5


def test_without_resume_sound_caches_are_built_again(tmp_path: Path) -> None:
    build(tmp_path, *THREE)

    _, output = build(tmp_path, *THREE, "--json")

    assert [row["status"] for row in json.loads(output)] == ["built"] * 3


def test_resume_goes_on_with_a_build_that_is_to_replace_a_sound_cache(tmp_path: Path) -> None:
    build(tmp_path, *THREE)
    leave_unfinished(tmp_path / NAMES[1], "--hospitals", "3", "--hospital", "1", "--seed", "1")

    code, output = build(tmp_path, *THREE, "--resume", "--batch-size", "8", "--seed", "1", "--json")

    assert code == 0, output
    assert [row["status"] for row in json.loads(output)] == ["kept", "built", "kept"]
    assert open_cache(tmp_path / NAMES[1]).manifest.seed == 1


def test_resume_builds_again_what_is_damaged_of_another_hospital_or_of_images_that_have_changed(tmp_path: Path) -> None:
    seen = ["--labels", "as-train", "--largest-ks", "1", "--least-overlap", "0"]
    build(tmp_path, *THREE)
    shutil.rmtree(tmp_path / NAMES[1])
    shutil.copytree(tmp_path / NAMES[0], tmp_path / NAMES[1])
    shard = next((tmp_path / NAMES[0]).glob("shard-*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    build(tmp_path / NAMES[2], *seen, "--set", "data.seed=5", "--hospitals", "3", "--hospital", "2")

    code, output = build(tmp_path, *THREE, "--resume", "--json")

    assert code == 0, output
    assert [row["status"] for row in json.loads(output)] == ["built"] * 3


@pytest.mark.parametrize("error", [GenerationError("no memory"), OSError("no space"), ConfigurationError("no --fresh")])
def test_a_hospital_that_fails_is_named_after_the_others_were_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_at(monkeypatch, NAMES[1], error=error)

    code, output = build(tmp_path, *THREE)

    assert code == 1
    assert f"2 of 3 hospitals have their caches, not {NAMES[1]}" in output
    assert f": {error}" in output
    assert [path.name for path in sorted(tmp_path.iterdir())] == [NAMES[0], NAMES[2]]


def test_a_failed_hospital_stands_in_the_json_list_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, NAMES[1], error=GenerationError("no memory"))

    code, output = build(tmp_path, *THREE, "--json")

    assert code == 1
    assert json.loads(output)[1] == {"hospital-id": NAMES[1], "status": "failed", "reason": "no memory"}


def test_what_is_wrong_for_all_hospitals_is_wrong_usage(tmp_path: Path) -> None:
    code, output = build(tmp_path, *THREE, "--set", "data.nonsense=1")

    assert code == 2
    assert "data.nonsense" in output


def test_a_dry_run_describes_every_build_and_writes_nothing(tmp_path: Path) -> None:
    code, output = build(tmp_path / "caches", *THREE, "--dry-run")

    plans = json.loads(output[output.index("[") :])
    assert code == 0
    assert [plan["purpose"]["hospital-id"] for plan in plans] == NAMES
    assert not (tmp_path / "caches").exists()


def test_every_hospital_s_images_are_matched_with_its_own(tmp_path: Path) -> None:
    code, output = build(
        tmp_path, "--every", "--hospitals", "2", *FITTED, "--largest-ks", "1", "--least-overlap", "0", "--match-moments"
    )

    assert code == 0, output
    found = [open_cache(tmp_path / name).manifest for name in NAMES[:2]]
    assert all(manifest.generator.settings["matched"] is True for manifest in found)
    assert found[0].generator.digest != found[1].generator.digest
    assert {manifest.provenance.source.value for manifest in found} == {"private-adapted"}


def test_resuming_all_hospitals_does_not_match_the_rest_of_an_unfinished_build(tmp_path: Path) -> None:
    strict, wide = ["--largest-ks", "0", "--least-overlap", "1.5"], ["--largest-ks", "1", "--least-overlap", "0"]
    two = ["--every", "--hospitals", "2", *FITTED, "--images", "120"]
    assert build(tmp_path, *two, *strict)[0] == 1

    code, output = build(tmp_path, *two, *wide, "--match-moments", "--resume")

    assert code == 1
    assert "generator.digest=" in output
    assert "0 of 2 hospitals have their caches" in output
