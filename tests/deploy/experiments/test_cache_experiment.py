"""The claims and the page of the cache's experiment, from made-up cells; the measures, on images that are known."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.experiments import cache_quality
from deploy.experiments.cache_experiment import cache_cells, cache_claims, write_cache_results
from deploy.experiments.cache_generators import generator_cell_name
from federation.datasets.image_set import ImageSet

FULL: dict[str, Any] = {
    "images": 4096,
    "train": 4708,
    "accuracy": {"real": [0.9, 0.9, 0.9], "synthetic": [0.9, 0.89, 0.91]},
    "ratios": [1.0, 0.99, 1.01],
    "coverage": {"brightness-ks": 0.02, "projection-ks": 0.04, "occupancy-overlap": 0.93, "protected": 0.7},
    "detector": [0.6, 0.7, 0.8],
    "detector-null": [0.5, 0.51, 0.49],
    "texture": {"real": 17.5, "synthetic": 16.0},
    "memorization": {"excess": -0.001, "low": -0.01, "high": 0.008, "duplicates": 0},
    "training-min": 27.0,
    "clock-min": 31.0,
    "steps": 5000,
    "images-per-s": 20.0,
}
BUILD = {
    "minutes": 2.0,
    "acceptance": {"candidates": 2100, "acceptance-rate": 0.97, "coverage": FULL["coverage"]},
}
CRASHES = {"kills": 200, "while_resuming": 40, "lost_images": 0, "corrupt_caches": 0, "differing": 0}


def made_up() -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {"crashes": CRASHES}
    for name in ("pneumoniamnist", "organamnist"):
        results[generator_cell_name(name, 0, 27.0)] = copy.deepcopy(FULL)
        for brightness in ("as-generated", "aim"):
            results[f"build-{name}-{brightness}"] = copy.deepcopy(BUILD)
    return results


def values(results: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    return {item.id: item.value for item in cache_claims(results)}


def test_every_claim_is_there_and_has_no_value_while_nothing_was_measured() -> None:
    found = values({})

    assert set(found) == {
        "cache_build_min",
        "generator_training_min",
        "pneumonia_synthetic_ratio",
        "organa_synthetic_ratio",
        "brightness_ks",
        "occupancy_overlap",
        "real_vs_synthetic_auc",
        "memorized_share",
        "crash_lost_images",
    }
    assert set(found.values()) == {None}


def test_good_cells_meet_all_claims() -> None:
    assert all(item.met for item in cache_claims(made_up()))


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("brightness_ks", {"coverage": {**FULL["coverage"], "brightness-ks": 0.2}}),
        ("occupancy_overlap", {"coverage": {**FULL["coverage"], "occupancy-overlap": 0.2}}),
        ("real_vs_synthetic_auc", {"detector": [0.9, 0.9, 0.9]}),
        ("memorized_share", {"memorization": {**FULL["memorization"], "excess": 0.2}}),
        ("generator_training_min", {"training-min": 45.0}),
        ("organa_synthetic_ratio", {"ratios": [0.5, 0.5, 0.5]}),
    ],
)
def test_the_worse_data_set_decides(claim: str, change: dict) -> None:
    results = made_up()
    results[generator_cell_name("organamnist", 0, 27.0)].update(change)

    unmet = [item.id for item in cache_claims(results) if not item.met]

    assert unmet == [claim]


def test_a_claim_about_both_data_sets_waits_for_both() -> None:
    results = made_up()
    del results[generator_cell_name("organamnist", 0, 27.0)]

    assert values(results)["brightness_ks"] is None
    assert values(results)["pneumonia_synthetic_ratio"] == pytest.approx(1.0)


def test_the_page_and_the_json_are_written_from_the_cells(tmp_path: Path) -> None:
    results = made_up()
    made = {key: {"date": "2026-01-01", "machine": "a machine", "revision": "abc"} for key in results}

    write_cache_results(results, made, tmp_path)

    page = (tmp_path / "04-cache.md").read_text()
    claims = json.loads((tmp_path / "04-cache.json").read_text())["claims"]
    assert "no differential privacy" in page
    assert "| pneumoniamnist | stable-diffusion | not measured |" in page
    assert (tmp_path / "04-cache-quality.svg").is_file()
    assert {item["command"] for item in claims} == {"aegis experiment cache"}


def test_cells_of_all_parts_have_names_of_their_own() -> None:
    names = [cell.name for cell in cache_cells(("diffusion", "others", "builds", "crashes"), data_root="x")]

    assert len(names) == len(set(names)) == 8 + 4 + 4 + 1


def draw(count: int, seed: int, shift: float = 0.0) -> ImageSet:
    stream = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = stream.normal(90 + 60 * labels[:, None, None, None] + shift, 25, size=(count, 1, 8, 8))
    return ImageSet(images=np.clip(images, 0, 255).astype(np.uint8), labels=labels)


def test_the_detector_is_at_chance_on_images_of_one_distribution_and_sure_on_others() -> None:
    same = cache_quality.detect(draw(1200, 1), draw(1200, 2), 0)
    other = cache_quality.detect(draw(1200, 1), draw(1200, 2, shift=30), 0)

    assert same == pytest.approx(0.5, abs=0.08)
    assert other > 0.95


def test_texture_is_the_mean_absolute_laplacian() -> None:
    checkers = (np.indices((6, 6)).sum(axis=0) % 2 * 255).astype(np.uint8)
    flat = ImageSet(images=np.full((1, 1, 6, 6), 7, dtype=np.uint8), labels=np.zeros(1, dtype=np.int64))

    assert cache_quality.texture(flat) == 0
    assert cache_quality.texture(ImageSet(images=checkers[None, None], labels=flat.labels)) == 4 * 255
