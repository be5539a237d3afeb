"""A build from generator to published cache: what it accepts, refuses, reports, and how it goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from aegis_cache.acceptance.budget import Budget
from aegis_cache.build import Builder, BuildProgress, BuildSettings
from aegis_cache.features.pixels import PixelFeatures
from aegis_cache.store.cache import open_cache
from aegis_cache.store.manifest import Manifest
from aegis_cache.store.provenance import Provenance, Source
from federation.errors import CacheError, GenerationError
from tests.aegis_cache.made_up_images import CLASSES, MadeUpGenerator, draw_real, make_purpose

REAL = draw_real(400, 1)
HELD_OUT = draw_real(100, 2)


def make_budget(pass_rate: float = 0.95) -> Budget:
    return Budget(REAL, HELD_OUT, CLASSES, PixelFeatures(), pass_rate=pass_rate)


def build(
    folder: Path,
    generator: MadeUpGenerator | None = None,
    *,
    resume: bool = False,
    private: bool = True,
    filtered: bool = True,
    show=lambda _: None,
    **settings: object,
) -> Manifest:
    chosen = {"images": 200, "batch_size": 64, **settings}
    builder = Builder(
        generator or MadeUpGenerator(),
        make_purpose(),
        BuildSettings(**chosen),  # type: ignore[arg-type]
        private=REAL if private else None,
        budget=make_budget() if filtered and private else None,
    )
    return builder.run(folder, resume=resume, show=show)


def test_a_cache_holds_as_many_images_as_wanted_in_the_proportions_of_the_training_images(tmp_path: Path) -> None:
    manifest = build(tmp_path / "cache")

    opened = open_cache(tmp_path / "cache", expected=make_purpose())
    assert len(opened) == 200
    assert manifest.label_histogram == (100, 100)


@pytest.mark.parametrize(
    ("labels", "expected"), [("as-train", (200, 0)), ("smoothed", (188, 12)), ("balanced", (100, 100))]
)
def test_a_class_that_the_hospital_lacks_is_there_only_where_labels_are_smoothed_or_balanced(
    tmp_path: Path, labels: str, expected: tuple[int, int]
) -> None:
    private = REAL.take(np.flatnonzero(REAL.labels == 0))
    settings = BuildSettings(images=200, batch_size=64, labels=labels)  # type: ignore[arg-type]

    manifest = Builder(MadeUpGenerator(), make_purpose(), settings, private=private).run(tmp_path / "cache")

    assert manifest.label_histogram == expected
    smoothed = [use for use in manifest.provenance.uses if "smoothed" in use]
    assert bool(smoothed) == (labels == "smoothed")


def test_the_same_seed_makes_the_same_images_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build(tmp_path / name, seed=seed)

    first, same, other = (open_cache(tmp_path / name).take(range(200)) for name in "abc")
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_a_build_that_is_broken_off_ends_with_the_same_images(tmp_path: Path, calls: int) -> None:
    build(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "broken", MadeUpGenerator(broken_after=calls))

    build(tmp_path / "broken", resume=True)

    whole, broken = (open_cache(tmp_path / name) for name in ("whole", "broken"))
    assert np.array_equal(whole.take(range(200)), broken.take(range(200)))
    assert whole.manifest.acceptance == broken.manifest.acceptance


def test_images_under_a_wrong_label_are_rejected_and_replaced(tmp_path: Path) -> None:
    manifest = build(tmp_path / "cache", MadeUpGenerator(wrong=0.3))

    opened = open_cache(tmp_path / "cache")
    brightness = opened.take(range(200)).mean(axis=(1, 2, 3))
    assert manifest.acceptance["rejected"] > 40
    assert (brightness[opened.labels == 0] < 140).all()
    assert manifest.label_histogram == (100, 100)


def test_copies_of_training_images_are_refused_and_counted(tmp_path: Path) -> None:
    manifest = build(tmp_path / "cache", MadeUpGenerator(copies=REAL), filtered=False)

    kept = {image.tobytes() for image in open_cache(tmp_path / "cache").take(range(200))}
    assert manifest.acceptance["copies"] >= 4
    assert not kept & {image.tobytes() for image in REAL.images}


def test_no_image_is_in_a_cache_twice(tmp_path: Path) -> None:
    build(tmp_path / "cache", MadeUpGenerator(copies=draw_real(2, 9)), private=False, labels="balanced")

    images = open_cache(tmp_path / "cache").take(range(200))
    assert len({image.tobytes() for image in images}) == 200


def test_a_generator_that_never_fits_ends_after_a_bounded_number_of_candidates(tmp_path: Path) -> None:
    generator = MadeUpGenerator(shift=120)

    with pytest.raises(GenerationError, match=r"after at most 400 candidates, still missing .*'dark' 100"):
        build(tmp_path / "cache", generator, attempts=2.0)

    assert generator.calls <= 8
    with pytest.raises(CacheError):
        open_cache(tmp_path / "cache")


def test_more_attempts_let_a_build_go_on_with_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(GenerationError):
        build(tmp_path / "cache", MadeUpGenerator(wrong=0.6), attempts=1.0)

    manifest = build(tmp_path / "cache", MadeUpGenerator(wrong=0.6), attempts=9.0, resume=True)

    assert manifest.images == 200


def test_images_that_are_too_bright_are_not_published_without_a_filter_either(tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match="brightness differs by"):
        build(tmp_path / "cache", MadeUpGenerator(shift=30), filtered=False)

    with pytest.raises(CacheError):
        open_cache(tmp_path / "cache")


def test_wider_bounds_publish_a_finished_build_that_was_refused(tmp_path: Path) -> None:
    with pytest.raises(GenerationError):
        build(tmp_path / "cache", MadeUpGenerator(shift=30), filtered=False)

    generator = MadeUpGenerator(shift=30)
    build(tmp_path / "cache", generator, filtered=False, resume=True, largest_ks=1.0, least_overlap=0.0)

    assert generator.calls == 0


def test_aimed_brightness_makes_up_for_a_generator_that_is_too_bright(tmp_path: Path) -> None:
    manifest = build(tmp_path / "cache", MadeUpGenerator(shift=30), filtered=False, aim_brightness=True)

    assert manifest.acceptance["coverage"]["brightness-ks"] < 0.03


def test_progress_tells_the_time_left_after_the_first_batch(tmp_path: Path) -> None:
    seen: list[BuildProgress] = []

    build(tmp_path / "cache", show=seen.append)

    assert seen[0].remaining_s is not None
    assert seen[0].remaining_s > 0
    assert seen[-1].accepted == 200
    assert seen[-1].remaining_s == 0


def test_another_preprocessing_does_not_go_on_with_the_old_build(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "cache", MadeUpGenerator(broken_after=1))
    other = Builder(
        MadeUpGenerator(),
        make_purpose(preprocessing="unit-interval-2"),
        BuildSettings(images=200, batch_size=64),
        private=REAL,
        budget=make_budget(),
    )

    with pytest.raises(CacheError, match="preprocessing"):
        other.run(tmp_path / "cache", resume=True)


def test_other_permitted_images_do_not_go_on_with_the_old_build(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "cache", MadeUpGenerator(broken_after=1), filtered=False)
    other = Builder(
        MadeUpGenerator(), make_purpose(), BuildSettings(images=200, batch_size=64), private=draw_real(400, 5)
    )

    with pytest.raises(CacheError, match="private-images"):
        other.run(tmp_path / "cache", resume=True)


def test_provenance_is_public_only_where_no_private_image_was_looked_at(tmp_path: Path) -> None:
    public = build(tmp_path / "public", private=False, labels="balanced")
    filtered = build(tmp_path / "filtered")
    learned = Provenance(source=Source.PRIVATE_ADAPTED, uses=("it learned from them",))
    adapted = build(tmp_path / "adapted", MadeUpGenerator(provenance=learned))

    assert public.provenance == Provenance.public()
    assert filtered.provenance.source is Source.PRIVATE_FILTERED
    assert len(filtered.provenance.uses) == 4
    assert adapted.provenance.source is Source.PRIVATE_ADAPTED
    assert adapted.provenance.uses[0] == "it learned from them"


@pytest.mark.parametrize(
    "settings", [{"labels": "as-train"}, {"labels": "smoothed"}, {"labels": "balanced", "aim_brightness": True}]
)
def test_settings_that_need_private_images_are_refused_without_any(tmp_path: Path, settings: dict) -> None:
    with pytest.raises(GenerationError, match="Expected permitted training images"):
        build(tmp_path / "cache", private=False, **settings)


@pytest.mark.parametrize("settings", [{"images": 0}, {"batch_size": 0}, {"attempts": 0.5}])
def test_settings_without_sense_are_refused(tmp_path: Path, settings: dict) -> None:
    with pytest.raises(GenerationError, match="of at least 1"):
        build(tmp_path / "cache", **settings)


def test_values_that_are_not_finite_end_the_build(tmp_path: Path) -> None:
    class Broken(MadeUpGenerator):
        def generate(self, labels: torch.Tensor, n: int, generator: torch.Generator) -> torch.Tensor:
            return super().generate(labels, n, generator) * torch.nan

    with pytest.raises(GenerationError, match="not finite"):
        build(tmp_path / "cache", Broken())


def test_class_names_and_seeds_decide_the_quotas_of_a_class_without_training_images(tmp_path: Path) -> None:
    lonely = REAL.take(np.flatnonzero(REAL.labels == 0))
    builder = Builder(MadeUpGenerator(), make_purpose(), BuildSettings(images=50), private=lonely)

    assert builder.wanted.tolist() == [50, 0]
