"""Measures of the asynchronous page: times, speed-ups, recalls, on curves with known answers and on a small run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.experiments.async_experiment import CHAPTERS, async_cells, async_claims
from deploy.experiments.async_field import DRAWS, recall_gaps
from deploy.experiments.async_field import cell_name as field_name
from deploy.experiments.async_runs import macro_recall, plateau, time_to, timed_cell
from deploy.experiments.async_speedup import cell_name, measure
from deploy.experiments.async_tuning import cell_name as tuning_name
from deploy.experiments.async_tuning import mean_time
from tests.deploy.experiments.made_up_cells import curve, made_up


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    parts = [name for chapter in CHAPTERS for name in chapter.parts]
    cells = async_cells(parts, "/data", Path("/source"))
    return {cell.name: made_up(cell) for cell in cells if "train_s" in cell.settings}


def test_time_counts_from_the_first_evaluation_at_the_target_or_from_the_first_mean_of_three() -> None:
    points = [(0.0, 0.1), (1.0, 0.8), (2.0, 0.2), (3.0, 0.8), (4.0, 0.8), (5.0, 0.8)]

    assert time_to(points, 0.7) == 1.0
    assert time_to(points, 0.7, mean_of=3) == 5.0
    assert time_to(points, 0.81) == math.inf


def test_plateau_is_the_mean_of_the_last_quarter_without_the_initial_model() -> None:
    points = [(float(step), accuracy) for step, accuracy in enumerate([0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])]

    assert plateau(points) == pytest.approx(0.75)
    assert plateau([(0.0, 0.1), (1.0, 0.3)]) == pytest.approx(0.3)


def test_macro_recall_counts_every_class_that_occurs_alike() -> None:
    labels, predicted = np.array([0, 0, 0, 2]), np.array([0, 0, 1, 1])

    assert macro_recall(predicted, labels) == pytest.approx((2 / 3 + 0) / 2)


def test_cell_tells_the_curve_over_virtual_time_and_what_the_last_model_does_for_every_hospital(tmp_path: Path) -> None:
    settings = {
        "data.name": "phantom",
        "data.partition": "iid",
        "data.phantom-examples": 600,
        "data.features": "wavelet",
        "model.name": "linear",
        "training.optimizer": "sgd",
        "training.learning-rate": 1.0,
        "aggregation.rule": "buffered",
        "aggregation.buffer-size": 2,
        "aggregation.rounds": 4,
    }
    cell = timed_cell("small", settings, seconds=[60.0, 60.0, 300.0], seed=1, data_root="")

    first, again = cell.compute(cell.settings, tmp_path), cell.compute(cell.settings, tmp_path)

    assert [moment for moment, _ in first["curve"]] == [0.0, 60.0, 120.0, 180.0, 240.0]
    assert [hospital["updates"] for hospital in first["hospitals"]] == [4, 4, 0]
    assert sum(hospital["accuracy"] for hospital in first["hospitals"]) / 3 == pytest.approx(
        first["curve"][-1][1], abs=1e-4
    )
    assert first["curve"][-1][1] > first["curve"][0][1]
    assert first["virtual_s"] == 240.0
    assert again["curve"] == first["curve"]
    assert json.loads(json.dumps(first))["staleness"] == {"mean": 0.0, "max": 0}


def test_speedup_is_the_smaller_of_two_readings_at_the_same_seed(results: dict[str, Any]) -> None:
    changed = {**results, cell_name("organa", "ours", 8, 3): {**results[cell_name("organa", "ours", 8, 3)]}}
    changed[cell_name("organa", "ours", 8, 3)]["curve"] = curve(12, 60.0)

    measured = measure(changed, "organa", "ours", 8)

    assert [item.seed for item in measured] == [0, 1, 2, 3, 4]
    first = [5 * 8 / 6] * 3 + [5 * 8 / 12, 5 * 8 / 6]
    assert [item.first_speedup for item in measured] == pytest.approx(first)
    assert [item.speedup for item in measured] == pytest.approx(first)
    assert all(item.speedup < 7 * 8 / 8 for item in measured)  # What "held" alone would give.
    assert measured[0].worst_gap == pytest.approx(1.0)


def test_one_synchronous_run_stands_for_every_speed_of_the_slowest(results: dict[str, Any]) -> None:
    slower = measure(results, "organa", "ours", 20)

    assert [item.speedup for item in slower] == pytest.approx([5 * 20 / 6] * 5)
    assert not [name for name in results if "-fedavg-20x" in name]


def test_what_never_learns_has_no_speedup(results: dict[str, Any]) -> None:
    name = cell_name("organa", "ours", 8, 0)
    changed = {**results, name: {**results[name], "curve": curve(100, 60.0)}}

    first = measure(changed, "organa", "ours", 8)[0]

    assert (first.held_s, first.speedup) == (math.inf, 0.0)


def test_field_case_compares_the_slow_hospitals_only_and_only_within_a_quarter_of_the_time(
    results: dict[str, Any],
) -> None:
    changed = dict(results)
    for seed, slow in DRAWS["organa"].items():
        name = field_name("organa", "ours", seed)
        better = [
            {**item, "recall": 0.9 if site in slow else 0.1} for site, item in enumerate(results[name]["hospitals"])
        ]
        changed[name] = {**results[name], "hospitals": better}
    late = field_name("organa", "ours", 10)
    changed[late] = {**changed[late], "virtual_s": 1e9}

    gaps = recall_gaps(changed, "organa", "ours")

    assert gaps == pytest.approx(dict.fromkeys([0, 1, 6, 7], -5.0))
    assert {item.id: item.value for item in async_claims(changed)}["field_case_recall_gap_points"] is None


def test_tuning_time_is_measured_against_the_best_plateau_of_fedavg(results: dict[str, Any]) -> None:
    lower = {
        tuning_name("organa", "fedavg", local, server, seed): {"curve": curve(0, 480.0)[:1] + [[480.0, 0.2]] * 3}
        for local, server in ((3.0, 1.0), (30.0, 1.0))
        for seed in (100, 101)
    }

    time = mean_time({**results, **lower}, "organa", "fedasync", (10.0, 0.3), seeds=(100,))

    assert time == pytest.approx(12.0)
    assert mean_time(results, "organa", "fedasync", (10.0, 99.0), seeds=(100,)) is None
