"""The claims and the page of the masking experiment, from made-up cells; small measures on made-up images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aegis_cache.store.cache import open_cache
from deploy.experiments import masking_sources
from deploy.experiments.masking_costs import PIECES
from deploy.experiments.masking_exactness import measure_bytes, measure_exactness
from deploy.experiments.masking_experiment import masking_cells, masking_claims, write_masking_results
from deploy.experiments.masking_federations import (
    CLAIM_SEEDS,
    MODES,
    SEEDS,
    SWEEPS,
    accuracy_name,
    late_mean,
    sweep_name,
)
from deploy.experiments.masking_points import interval
from deploy.experiments.masking_sources import draw, prepare_caches
from deploy.experiments.parts import MASKING_PARTS
from federation.config import DataConfig
from federation.datasets.image_set import Dataset, ImageSet
from federation.datasets.sites import load_site

CLAIMS = {
    "accuracy_delta_points_organa",
    "accuracy_delta_points_pneumonia",
    "mnist_overhead_ratio",
    "cifar_overhead_ratio",
    "wire_overhead_bytes",
    "microbatch_max_abs_error",
    "peak_memory_growth_ratio",
}


def federation(accuracy: float, versions: int = 20) -> dict[str, Any]:
    curve = [{"version": version, "accuracy": accuracy, "auroc": 0.9} for version in range(versions + 1)]
    return {"curve": curve, "final": {"accuracy": accuracy, "auroc": 0.9}}


def made_up() -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {
        f"{name}-{mode}-{seed}": federation(0.6 + 0.01 * seed)
        for name in ("organamnist", "pneumoniamnist")
        for mode in MODES
        for seed in CLAIM_SEEDS[name]
    }
    results |= {
        accuracy_name(name, "interleaved", seed, source=source, labels=labels): federation(0.6 + 0.01 * seed)
        for name in ("organamnist", "pneumoniamnist")
        for source in ("adapted", "thorough")
        for labels in ("as-train", "balanced")
        for seed in (CLAIM_SEEDS[name] if labels == "as-train" else SEEDS)
    }
    results |= {sweep_name(label, mode): federation(0.6) for label in SWEEPS for mode in ("none", "interleaved")}
    results["worth-thorough-organamnist"] = {"synthetic": [0.8, 0.82], "real": [0.9, 0.9]}
    timed = {"median-ratio": 3.5, "ratios": [3.4, 3.5, 3.6], "pairs": []}
    results |= {f"time-{data}-interleaved-1-full": timed for data in ("mnist", "cifar")}
    results |= {f"pieces-{data}": {"ratios": dict.fromkeys(map(str, PIECES), 3.5)} for data in ("mnist", "cifar")}
    results["bytes"] = {"most": 0, "longer": {}}
    results["exactness"] = {"most": 1e-7, "largest": {"cnn": {"1": 1e-7, "64": 1e-8}}}
    results["memory"] = {"growth": 1.01, "peak-bytes": {"joint": {"512": [10**8], "4096": [10**8]}}}
    return results


def values(results: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    return {item.id: item.value for item in masking_claims(results)}


def test_every_claim_is_there_and_has_no_value_while_nothing_was_measured() -> None:
    found = values({})

    assert set(found) == CLAIMS
    assert set(found.values()) == {None}


def test_good_cells_meet_all_claims() -> None:
    assert all(item.met for item in masking_claims(made_up()))


@pytest.mark.parametrize(
    ("claim", "cell", "change"),
    [
        ("accuracy_delta_points_organa", "organamnist-interleaved-thorough-1", federation(0.5)),
        ("accuracy_delta_points_pneumonia", "pneumoniamnist-none-2", federation(0.9)),
        ("mnist_overhead_ratio", "time-mnist-interleaved-1-full", {"median-ratio": 3.81}),
        ("cifar_overhead_ratio", "time-cifar-interleaved-1-full", {"median-ratio": 4.41}),
        ("wire_overhead_bytes", "bytes", {"most": 1}),
        ("microbatch_max_abs_error", "exactness", {"most": 2e-5}),
        ("peak_memory_growth_ratio", "memory", {"growth": 1.06}),
    ],
)
def test_claim_follows_its_cell(claim: str, cell: str, change: dict[str, Any]) -> None:
    results = made_up()
    results[cell] = {**results[cell], **change}

    missed = {item.id for item in masking_claims(results) if not item.met}

    assert missed == {claim}


def test_accuracy_has_no_value_until_all_seeds_are_there() -> None:
    results = made_up()
    del results["organamnist-none-1"]

    assert values(results)["accuracy_delta_points_organa"] is None


def test_page_shows_what_was_measured_and_names_what_masking_is_not(tmp_path: Path) -> None:
    made = {name: {"date": "2026-01-01", "machine": "m", "revision": "r"} for name in made_up()}

    write_masking_results(made_up(), made, tmp_path)

    page = (tmp_path / "05-masking.md").read_text(encoding="utf-8")
    assert {item["id"] for item in json.loads((tmp_path / "05-masking.json").read_text())["claims"]} == CLAIMS
    assert (tmp_path / "05-masking-accuracy.svg").is_file()
    for mode in MODES:
        assert f"| organamnist | {mode} |" in page
    assert "| organamnist | interleaved | adapted |" in page
    assert "| organamnist | thorough | 10,000 steps | 81.0 ± 1.4 | 90.0 ± 0.0 | 0.900 | +0.0 ± 0.0 |" in page
    assert "| cifar | 3.50 | 3.50 |" in page
    assert "no differential privacy" in page


def test_page_of_nothing_has_no_empty_tables(tmp_path: Path) -> None:
    write_masking_results({}, {}, tmp_path)

    page = (tmp_path / "05-masking.md").read_text(encoding="utf-8")
    assert "## Accuracy" not in page
    assert "## Time" not in page


def test_names_of_cells_are_unique_and_every_part_has_some() -> None:
    names = [cell.name for part in MASKING_PARTS for cell in masking_cells([part], data_root="/data")]

    assert len(names) == len(set(names))
    assert all(masking_cells([part], data_root="/data") for part in MASKING_PARTS)
    assert all(sweep_name(label, "interleaved") in names for label in SWEEPS)


def test_interval_of_a_mean_is_that_of_students_distribution() -> None:
    # Two degrees of freedom: 4.3027 times 1 over the root of 3.
    assert interval([1.0, 2.0, 3.0]) == "95 % interval of the mean -0.5 to +4.5"
    assert interval([1.0]) == "no interval"


def test_late_mean_is_that_of_the_last_versions_and_none_while_they_are_not_there() -> None:
    found = {"curve": [{"version": version, "accuracy": float(version)} for version in range(13)]}

    assert late_mean(found, 12) == pytest.approx((8 + 9 + 10 + 11 + 12) / 5)
    assert late_mean(found, 10) == pytest.approx((6 + 7 + 8 + 9 + 10) / 5)
    assert late_mean(found, 13) is None


def test_accuracy_has_no_value_while_a_run_has_not_come_to_its_end() -> None:
    results = made_up()
    results["organamnist-none-1"] = federation(0.6, versions=10)

    assert values(results)["accuracy_delta_points_organa"] is None


@pytest.mark.parametrize("labels", ["as-train", "smoothed", "balanced"])
def test_every_hospital_gets_a_cache_with_its_own_label_proportions_or_all_classes_alike(
    labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataConfig(phantom_examples=300, partition="classes", classes_per_hospital=2)
    held = [load_site(data, site=site, sites=4, seed=0) for site in range(4)]
    stock = ImageSet(images=np.zeros((40, *held[0].train.images.shape[1:]), np.uint8), labels=np.arange(40) % 4)
    monkeypatch.setattr(masking_sources, "_pool", lambda folder, name: stock)

    settings = {"source": "diffusion", "size": 64, "labels": labels}
    made = prepare_caches(settings, data, hospitals=4, seed=0, folder=tmp_path)

    assert prepare_caches(settings, data, hospitals=4, seed=0, folder=tmp_path) == made
    for site, own in enumerate(held):
        cache = open_cache(made / f"hospital-{site:03d}")
        assert len(cache) == 64
        if labels == "balanced":
            assert np.bincount(cache.labels).tolist() == [16] * 4
        elif labels == "smoothed":
            lacking = np.bincount(own.train.labels, minlength=4) == 0
            assert np.bincount(cache.labels, minlength=4)[lacking].tolist() == [2] * int(lacking.sum())
        else:
            assert set(cache.labels.tolist()) <= set(own.train.labels.tolist())


@pytest.mark.parametrize("source", ["gaussian", "real"])
def test_other_sources_give_as_many_images_as_wanted(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataConfig(phantom_examples=300, partition="iid")
    held = load_site(data, site=0, sites=2, seed=0)
    monkeypatch.setattr(masking_sources, "load_own_folder", lambda data, seed: held)

    drawn = draw(source, held, data, 200, tmp_path, 0)

    assert len(drawn) == 200
    assert drawn.images.shape[1:] == held.train.images.shape[1:]


def test_hospital_with_hardly_any_image_of_a_class_fits_one_gaussian_to_all(tmp_path: Path) -> None:
    held = load_site(DataConfig(phantom_examples=300, partition="iid"), site=0, sites=2, seed=0)
    few = np.flatnonzero((held.train.labels != 0) | (np.cumsum(held.train.labels == 0) <= 2))
    held = Dataset.of_splits(
        held.info, {"train": held.train.take(few), "validation": held.validation, "test": held.test}, given_split=True
    )

    drawn = draw("gaussian", held, DataConfig(), 50, tmp_path, 0)

    assert len(drawn) == 50
    assert set(drawn.labels.tolist()) <= set(held.train.labels.tolist())


def test_masked_run_has_as_many_bytes_as_an_unmasked_one(tmp_path: Path) -> None:
    assert measure_bytes({"mechanisms": ["none"]}, tmp_path)["most"] == 0


def test_pieces_differ_from_the_whole_by_rounding_alone(tmp_path: Path) -> None:
    found = measure_exactness({"models": ["mlp"], "batch": 20, "micro-batches": [3, 20]}, tmp_path)

    assert 0 < found["most"] < 1e-6
