"""`aegis cache`: what a hospital's IT types, what it sees, and how it ends."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan
from aegis_cache.store.cache import open_cache
from deploy.cli import main
from federation.datasets.image_set import ImageSet

PHANTOM = ["--set", "data.name=phantom", "--set", "data.phantom-examples=600", "--set", "data.phantom-classes=2"]
QUICK = ["--generator", "gaussian", "--filter", "none", "--images", "60", "--largest-ks", "1", "--least-overlap", "0"]


def run(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["cache", *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


def build(folder: Path, *arguments: object) -> tuple[int, str]:
    return run("build", folder, *PHANTOM, *QUICK, *arguments)


def write_policy(folder: Path, *, private_images: str = "train", fraction: float = 1.0) -> Path:
    """A hospital of two classes of grey images, and its policy."""
    stream = np.random.default_rng(0)
    labels = np.arange(400) % 2
    images = (70 + 90 * labels[:, None, None] + stream.normal(0, 20, size=(400, 8, 8))).clip(0, 255).astype(np.uint8)
    np.savez(folder / "images.npz", images=images, labels=labels)
    path = folder / "site.toml"
    path.write_text(
        f'hospital-id = "charite"\nstate-dir = "{folder}/state"\nkeys-dir = "{folder}/keys"\n'
        f'[data]\nid = "chest-2026"\nname = "npz"\nroot = "{folder}/images.npz"\n'
        f'[masking]\nprivate-images = "{private_images}"\npermitted-fraction = {fraction}\n'
    )
    return path


def random_images(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, size=(count, 8, 8), dtype=np.uint8)


def test_build_publishes_a_cache_that_verify_and_show_accept(tmp_path: Path) -> None:
    code, output = build(tmp_path / "cache")

    assert code == 0, output
    assert "no differential privacy" in output
    assert run("verify", tmp_path / "cache") == (0, f"{tmp_path / 'cache'}: sound, 60 images in 1 shards\n")
    code, output = run("show", tmp_path / "cache", "--json")
    assert code == 0
    assert json.loads(output)["provenance"]["source"] == "private-adapted"


def test_a_hospital_with_a_policy_gets_a_cache_in_its_own_name(tmp_path: Path) -> None:
    policy = write_policy(tmp_path)

    code, output = run("build", tmp_path / "cache", "--policy", policy, *QUICK)

    assert code == 0, output
    purpose = open_cache(tmp_path / "cache").manifest.purpose
    assert (purpose.hospital_id, purpose.data_set) == ("charite", "chest-2026")
    assert run("verify", tmp_path / "cache", "--policy", policy)[0] == 0


def test_verify_with_a_policy_refuses_the_cache_of_another_hospital(tmp_path: Path) -> None:
    build(tmp_path / "cache")

    code, output = run("verify", tmp_path / "cache", "--policy", write_policy(tmp_path))

    assert code == 1
    assert "hospital-id='charite', found 'hospital-000'" in " ".join(output.split())


@pytest.mark.parametrize(
    ("private_images", "arguments", "wanted"),
    [
        ("unused", ["--generator", "gaussian"], "masking.private-images = 'train'"),
        ("compare", ["--generator", "gaussian"], "masking.private-images = 'train'"),
        ("compare", ["--generator", "diffusion"], "masking.private-images = 'train'"),
    ],
)
def test_a_policy_that_does_not_let_generators_learn_stops_the_build(
    tmp_path: Path, private_images: str, arguments: list[str], wanted: str
) -> None:
    policy = write_policy(tmp_path, private_images=private_images)

    code, output = run("build", tmp_path / "cache", "--policy", policy, *arguments)

    assert code == 2
    assert wanted in " ".join(output.split())
    assert not (tmp_path / "cache").exists()


def test_a_policy_that_lets_no_image_be_used_allows_public_images_without_a_filter(tmp_path: Path) -> None:
    policy = write_policy(tmp_path, private_images="unused")
    np.savez(tmp_path / "stock.npz", images=random_images(80), labels=np.arange(80) % 2)
    stock = ["--generator", "folder", "--weights", tmp_path / "stock.npz", "--weights-are-public", "--images", "40"]

    refused, said = run("build", tmp_path / "cache", "--policy", policy, *stock)
    code, output = run(
        "build", tmp_path / "cache", "--policy", policy, *stock, "--filter", "none", "--labels", "balanced"
    )

    assert refused == 2
    assert "--filter none --labels balanced" in " ".join(said.split())
    assert code == 0, output
    assert open_cache(tmp_path / "cache").manifest.provenance.source.value == "public"


def test_weights_of_unknown_origin_count_as_private(tmp_path: Path) -> None:
    policy = write_policy(tmp_path, private_images="unused")
    np.savez(tmp_path / "stock.npz", images=random_images(40), labels=np.arange(40) % 2)
    stock = ["--generator", "folder", "--weights", tmp_path / "stock.npz", "--images", "8"]

    code, output = run(
        "build", tmp_path / "cache", "--policy", policy, *stock, "--filter", "none", "--labels", "balanced"
    )

    assert code == 0, output
    assert open_cache(tmp_path / "cache").manifest.provenance.source.value == "private-adapted"


def test_only_the_permitted_fraction_of_the_images_is_used(tmp_path: Path) -> None:
    filtered = ["--filter", "nearest", "--features", "pixels"]
    numbers = {}
    for fraction in (1.0, 0.5):
        policy = write_policy(tmp_path, fraction=fraction)
        code, output = run("build", tmp_path / str(fraction), "--policy", policy, *QUICK, *filtered)
        assert code == 0, output
        uses = open_cache(tmp_path / str(fraction)).manifest.provenance.uses
        numbers[fraction] = {int(word) for use in uses for word in use.split() if word.isdigit()}

    assert len(numbers[1.0]) == len(numbers[0.5]) == 2  # training and validation images
    assert max(numbers[0.5]) == round(max(numbers[1.0]) / 2)
    assert min(numbers[0.5]) == round(min(numbers[1.0]) / 2)


def test_a_dry_run_says_what_would_be_built_and_writes_nothing(tmp_path: Path) -> None:
    code, output = build(tmp_path / "cache", "--dry-run")

    plan = json.loads(output[output.index("{") :])
    assert code == 0
    assert plan["images"] == 60
    assert sum(plan["per-class"].values()) == 60
    assert not (tmp_path / "cache").exists()


def test_a_dry_run_trains_nothing(tmp_path: Path) -> None:
    code, _ = run("build", tmp_path / "cache", "--policy", write_policy(tmp_path), "--dry-run")

    assert code == 0
    assert not (tmp_path / "cache").exists()


def test_few_images_are_warned_about_with_what_they_can_protect(tmp_path: Path) -> None:
    _, output = build(tmp_path / "cache")

    assert "would share a bin with 6% of the real images" in " ".join(output.split())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--labels", "nonsense"], "--labels"),
        (["--images", "0"], "--images"),
        (["--generator", "gan"], "--generator"),
        (["--pass-rate", "1.5"], "--pass-rate"),
        (["--brightness", "nice"], "--brightness"),
        (["--set", "data.nonsense=1"], "data.nonsense"),
        (["--steps", "5"], "--steps"),
        (["--sheet", "/nowhere/at/all.png"], "--sheet"),
        (["--generator", "folder"], "--weights"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_written(tmp_path: Path, arguments: list[str], named: str) -> None:
    code, output = build(tmp_path / "cache", *arguments)

    assert code == 2
    assert named in output
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("labels", ["smoothed", "balanced"])
def test_a_generator_is_not_trained_for_classes_that_the_hospital_lacks(tmp_path: Path, labels: str) -> None:
    lacking = ["--set", "data.phantom-classes=4", "--set", "data.partition=classes", "--set"]
    lacking += ["data.classes-per-hospital=2", "--hospitals", "4", "--generator", "diffusion"]

    code, output = build(tmp_path / "cache", *lacking, "--labels", labels)

    assert code == 2
    assert f"of every class for --labels {labels}" in " ".join(output.split())
    assert not (tmp_path / "cache" / "generator").exists()


def test_errors_are_json_where_json_is_asked_for(tmp_path: Path) -> None:
    code, output = build(tmp_path / "cache", "--labels", "nonsense", "--json")

    assert code == 2
    assert json.loads(output)["status"] == "refused"


def test_poor_coverage_is_not_published_and_can_be_accepted_on_purpose(tmp_path: Path) -> None:
    many = ["--images", "120"]
    code, output = build(tmp_path / "cache", *many, "--largest-ks", "0", "--least-overlap", "1.5")

    assert code == 1
    assert "do not cover what real ones do" in " ".join(output.split())
    assert build(tmp_path / "cache", *many)[0] == 1
    assert build(tmp_path / "cache", *many, "--resume")[0] == 0


def test_an_unfinished_build_is_thrown_away_with_fresh(tmp_path: Path) -> None:
    build(tmp_path / "cache", "--images", "120", "--largest-ks", "0", "--least-overlap", "1.5")

    assert build(tmp_path / "cache")[0] == 1
    assert build(tmp_path / "cache", "--fresh")[0] == 0


def test_audit_writes_a_report_for_the_hospital_alone(tmp_path: Path) -> None:
    build(tmp_path / "cache")

    code, output = run("audit", tmp_path / "cache", *PHANTOM, "--features", "pixels", "--limit", "1")

    assert code == 0, output
    assert "passed: copies of training images: 0" in " ".join(output.split())
    report = tmp_path / "cache" / "audit.html"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert "<img" in report.read_text()
    build(tmp_path / "cache", "--seed", "1")
    assert not report.exists()  # It was about other images.


def test_an_audit_that_cannot_decide_says_so_and_does_not_look_green(tmp_path: Path) -> None:
    build(tmp_path / "cache")

    code, output = run("audit", tmp_path / "cache", *PHANTOM, "--features", "pixels", "--limit", "0.001")

    assert code == 1
    assert "undecided" in output


def test_audit_and_sheet_refuse_the_cache_of_another_hospital(tmp_path: Path) -> None:
    build(tmp_path / "cache")
    policy = write_policy(tmp_path)

    audited, said = run("audit", tmp_path / "cache", "--policy", policy)
    shown, _ = run("show", tmp_path / "cache", "--policy", policy, "--sheet", tmp_path / "sheet.png")

    assert (audited, shown) == (1, 1)
    assert "hospital-id='charite'" in " ".join(said.split())
    assert not (tmp_path / "sheet.png").exists()
    assert not (tmp_path / "cache" / "audit.html").exists()


def test_verify_notices_that_training_images_or_labels_have_changed(tmp_path: Path) -> None:
    policy = write_policy(tmp_path)
    run("build", tmp_path / "cache", "--policy", policy, *QUICK)
    with np.load(tmp_path / "images.npz") as stored:
        images, labels = stored["images"], stored["labels"]
    np.savez(tmp_path / "images.npz", images=images, labels=1 - labels)

    code, output = run("verify", tmp_path / "cache", "--policy", policy)

    assert code == 1
    assert "changed since" in " ".join(output.split())


def test_copies_of_permitted_images_are_refused_whatever_the_generator(tmp_path: Path) -> None:
    policy = write_policy(tmp_path, private_images="compare")
    own = ["--generator", "folder", "--weights", tmp_path / "images.npz", "--weights-are-public", "--images", "40"]
    plain = ["--filter", "none", "--labels", "balanced"]

    refused, said = run("build", tmp_path / "a", "--policy", policy, *own, *plain)
    unchecked, _ = run("build", tmp_path / "b", "--policy", policy, *own, *plain, "--unchecked")

    assert refused == 1
    assert "were copies" in " ".join(said.split())
    assert unchecked == 0
    assert open_cache(tmp_path / "b").manifest.acceptance["copies-checked"] is False


def test_class_names_with_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    for name in ("[red]dark", "[/red]"):
        (tmp_path / "data" / name.replace("/", "-")).mkdir(parents=True)
    names = [path.name for path in (tmp_path / "data").iterdir()]
    stream = np.random.default_rng(0)
    for name in names:
        for number in range(60):
            pixels = stream.integers(0, 255, size=(8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{number}.png")

    code, output = run(
        "build", tmp_path / "cache", "--set", "data.name=folder", "--set", f"data.root={tmp_path / 'data'}", *QUICK
    )

    assert code == 0, output
    assert "[red]dark" in output


@pytest.mark.parametrize(
    ("change", "how"),
    [(["--seed", "5"], "settings"), (["--train-minutes", "0.03"], "settings"), ([], "images")],
)
def test_a_kept_generator_of_other_images_or_settings_is_not_used_silently(
    tmp_path: Path, change: list[str], how: str
) -> None:
    options = ["--generator", "diffusion", "--train-minutes", "0.01", "--steps", "10"]
    wide = ["--filter", "none", "--images", "4", "--largest-ks", "1", "--least-overlap", "0"]
    assert run("build", tmp_path / "cache", "--policy", write_policy(tmp_path), *options, *wide)[0] == 0
    policy = write_policy(tmp_path, fraction=0.5 if how == "images" else 1.0)

    refused, said = run("build", tmp_path / "cache", "--policy", policy, *options, *wide, *change)
    trained, _ = run("build", tmp_path / "cache", "--policy", policy, *options, *wide, *change, "--fresh")

    assert refused == 2
    assert "pass --fresh to train anew" in " ".join(said.split())
    assert trained == 0


def test_the_state_of_a_training_with_other_images_is_refused(tmp_path: Path) -> None:
    options = ["--generator", "diffusion", "--train-minutes", "0.01", "--steps", "10", "--filter", "none"]
    (tmp_path / "cache" / "generator").mkdir(parents=True, mode=0o700)
    (tmp_path / "cache").chmod(0o700)
    other = ImageSet(images=np.zeros((20, 1, 8, 8), dtype=np.uint8), labels=np.arange(20) % 2)
    DiffusionTraining(
        other, 2, TrainingPlan(steps=1), checkpoint=tmp_path / "cache" / "generator" / "training.pt"
    ).run()

    code, output = run("build", tmp_path / "cache", "--policy", write_policy(tmp_path), *options)

    assert code == 1
    assert "pass --fresh to begin again" in " ".join(output.split())


def test_the_sheet_is_a_picture_that_only_its_owner_may_read(tmp_path: Path) -> None:
    build(tmp_path / "cache", "--sheet", tmp_path / "sheet.png")

    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert stat.S_IMODE((tmp_path / "sheet.png").stat().st_mode) == 0o600


def test_a_filter_accepts_by_distance_and_says_so(tmp_path: Path) -> None:
    code, output = run(
        "build", tmp_path / "cache", "--policy", write_policy(tmp_path), *QUICK, "--filter", "nearest",
        "--features", "pixels", "--json",
    )  # fmt: skip

    acceptance = json.loads(output[output.index("{") :])["acceptance"]
    assert code == 0
    assert "nearest pairs" in acceptance["filter"]
    assert all("limit" in row for row in acceptance["per-class"].values())


def test_a_diffusion_model_is_trained_once_and_used_again(tmp_path: Path) -> None:
    policy = write_policy(tmp_path)
    options = ["--policy", policy, "--generator", "diffusion", "--train-minutes", "0.02", "--steps", "10"]
    wide = ["--filter", "none", "--images", "8", "--largest-ks", "1", "--least-overlap", "0"]

    first, said = run("build", tmp_path / "cache", *options, *wide)
    weights = (tmp_path / "cache" / "generator" / "network.safetensors").read_bytes()
    second, _ = run("build", tmp_path / "cache", *options, *wide, "--labels", "balanced")

    assert (first, second) == (0, 0), said
    assert (tmp_path / "cache" / "generator" / "network.safetensors").read_bytes() == weights
    assert not (tmp_path / "cache" / "generator" / "training.pt").exists()


def test_matched_images_have_the_mean_of_the_permitted_ones_and_say_that_these_were_used(tmp_path: Path) -> None:
    policy = write_policy(tmp_path)
    with np.load(tmp_path / "images.npz") as stored:
        wanted = stored["images"].mean()
    np.savez(tmp_path / "stock.npz", images=random_images(400) // 2 + 20, labels=np.arange(400) % 2)
    stock = ["--generator", "folder", "--weights", tmp_path / "stock.npz", "--images", "300"]
    own = ["--policy", policy, *QUICK, *stock]

    plain, _ = run("build", tmp_path / "plain", *own)
    matched, said = run("build", tmp_path / "matched", *own, "--match-moments")

    assert (plain, matched) == (0, 0), said
    caches = [open_cache(tmp_path / name) for name in ("plain", "matched")]
    gaps = [abs(cache.take(np.arange(300)).mean() - wanted) for cache in caches]
    assert gaps[0] > 20
    assert gaps[1] < 8  # Brightness has a deviation of 45: that of the mean of 300 images is 2.6.
    generators = [cache.manifest.generator for cache in caches]
    assert ["matched" in generator.settings for generator in generators] == [False, True]
    assert generators[0].digest != generators[1].digest
    assert caches[1].manifest.provenance.source.value == "private-adapted"
    assert any(use.startswith("Mean and covariance") for use in caches[1].manifest.provenance.uses)


@pytest.mark.parametrize("private_images", ["unused", "compare"])
def test_moments_are_not_matched_where_the_policy_does_not_let_generators_learn(
    tmp_path: Path, private_images: str
) -> None:
    policy = write_policy(tmp_path, private_images=private_images)
    np.savez(tmp_path / "stock.npz", images=random_images(400), labels=np.arange(400) % 2)
    stock = ["--generator", "folder", "--weights", tmp_path / "stock.npz", "--filter", "none"]

    code, output = run("build", tmp_path / "cache", "--policy", policy, *stock, "--match-moments")

    assert code == 2
    assert "masking.private-images = 'train'" in " ".join(output.split())
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--generator", "diffusion", "--dp-epsilon", "4"], "would be 'private-adapted' and refused"),
        (["--weights", "some.npz", "--weights-are-public"], "would be 'private-adapted' and refused"),
        (["--generator", "phantom"], "another --generator than phantom"),
        (["--labels", "balanced"], "Expected --labels as-train"),
    ],
)
def test_matching_moments_is_refused_beside_what_it_would_belie(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    code, output = build(tmp_path / "cache", *arguments, "--match-moments")

    assert code == 2
    assert "--match-moments: " in output
    assert reason in " ".join(output.split())
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("first", "then"), [([], ["--match-moments"]), (["--match-moments"], [])])
def test_a_build_does_not_go_on_with_moments_matched_in_only_a_part_of_it(
    tmp_path: Path, first: list[str], then: list[str]
) -> None:
    own = ["build", tmp_path / "cache", "--policy", write_policy(tmp_path), *QUICK, "--images", "120"]
    assert run(*own, *first, "--largest-ks", "0", "--least-overlap", "1.5")[0] == 1

    refused, said = run(*own, *then, "--resume")
    resumed, output = run(*own, *first, "--resume")

    assert refused == 1
    assert "generator.digest=" in " ".join(said.split())
    assert resumed == 0, output


def test_matching_takes_the_seed_of_the_build(tmp_path: Path) -> None:
    own = ["--policy", write_policy(tmp_path), *QUICK, "--match-moments"]
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        code, output = run("build", tmp_path / name, *own, "--seed", seed)
        assert code == 0, output

    digests = [open_cache(tmp_path / name).manifest.generator.digest for name in ("first", "again", "other")]
    assert digests[0] == digests[1] != digests[2]
