"""The leakage experiment: its claims follow from its cells, and its page says what was measured and nothing else."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.metrics.intervals import wilson_interval
from deploy.experiments import leakage_sources
from deploy.experiments.leakage_cells import PAPER, SIZES, class_name, crowded_name, label_name, table_name
from deploy.experiments.leakage_csv import leakage_csv, lengthen, shorten
from deploy.experiments.leakage_experiment import PLAIN, leakage_cells, leakage_claims, write_leakage_results
from deploy.experiments.leakage_grid import leakage_cell, make_trial
from deploy.experiments.leakage_page import widest_excess
from deploy.experiments.leakage_sources import DATA, MATCHED, load_world
from deploy.experiments.parts import LEAKAGE_PARTS
from federation.config import DataConfig
from federation.datasets.sites import load_site

CLAIMS = {
    "none_verbatim_pct",
    *(f"lambda_rr30_pct_{size}" for size in SIZES),
    "sequential_rr30_pct",
    "best_aegis_excess_rr_points",
    "loki100_verbatim_pct",
    "scale_mia_rr18_pct",
    "dpsgd_eps8_rr30_pct",
    "guard_detection_pct",
    "guard_false_alarms",
    "attack_eval_min",
    "occupancy_selftest",
}
MADE = {"date": "2026-01-01", "machine": "a machine", "revision": "abc"}


def made_up_rate(share: float, guessed: float) -> dict[str, Any]:
    recovered = {"hits": round(100 * share), "count": 100, "share": share, "low": share - 0.01, "high": share + 0.01}
    return {"recovered": recovered, "excess": {"best-foreign": share - guessed, "scaled-mean": share, "mean": share}}


def made_up_report(share: float, guessed: float = 0.0) -> dict[str, Any]:
    return {
        "rates": [made_up_rate(share, guessed) for _ in range(5)],
        "psnr-db": 30.0,
        "ssim": 0.5,
        "identified": None,
        "precision": {"non-empty": {"count": 10, "hits": 1}},
        "histogram": [1] * 50,
        "histogram-width-db": 2.0,
    }


def made_up(share: float, *, guessed: float = 0.0, passed: bool = True) -> dict[str, Any]:
    return {
        "oracle": made_up_report(share, guessed),
        "hungarian": None,
        "nulls": {name: made_up_report(0.5) for name in ("best-foreign", "scaled-mean")},
        "verbatim": round(1536 * share),
        "by-seed": [[share] * 5, [share] * 5, [share] * 5],
        "alone": round(1536 * share),
        "images": 1536,
        "occupancy": {"low": 1, "high": 2, "expected": share, "passed": passed},
        "tau-star-db": 26.0,
        "processor-s": 12.0,
    }


def everything() -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {"known-none": {PLAIN: made_up(0.94)}}
    for size, share in zip(SIZES, (0.56, 0.35, 0.22, 0.14), strict=True):
        results[f"known-lambda-{size}"] = {PLAIN: made_up(share)}
    results[f"known-sequential-{PAPER}"] = {PLAIN: made_up(0.93)}
    for number, data in enumerate(DATA):
        cell = {"one": made_up(0.03, guessed=0.01), "two": made_up(0.04 + number / 100, guessed=0.02)}
        results[table_name(data, MATCHED, "interleaved-cautious")] = cell
        results[crowded_name(data, "interleaved-cautious")] = {"crowd": made_up(0.03)}
    results[label_name("balanced")] = {"one": made_up(0.2)}
    results["loki-100-none"] = {"loki-100": made_up(0.85)}
    results["scale-mia-none"] = {"scale-mia": made_up(0.95)}
    results["mechanism-dp-sgd"] = {"one": made_up(0.0), "two": made_up(0.0)}
    results["mechanism-none"] = {"one": made_up(0.9)}
    results["defence-gc-80"] = {"one": made_up(0.9)}
    results["guard-a"] = {"inspected": 600, "alarms": []}
    found = {"made": 200, "found": 199, "missed": ["x"], "by-check": {}}
    results["guard-a-crafted"] = {"crafted": found, "strong-noise": {"made": 4, "found": 3, "missed": ["x/noise-1"]}}
    return results


def values(results: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    return {item.id: item.value for item in leakage_claims(results)}


def test_every_claim_is_there_and_has_no_value_while_nothing_was_measured() -> None:
    found = values({})

    assert set(found) == CLAIMS
    assert set(found.values()) == {None}


def test_claims_are_met_by_the_numbers_that_meet_them() -> None:
    claims = {item.id: item for item in leakage_claims(everything())}

    assert {name for name, item in claims.items() if not item.met} == set()
    assert claims["best_aegis_excess_rr_points"].value == pytest.approx(4.0)
    assert claims["guard_detection_pct"].value == pytest.approx(100 * 201 / 202)
    assert claims["attack_eval_min"].value == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("cell", "item", "claim"),
    [
        ("known-none", {PLAIN: made_up(0.80)}, "none_verbatim_pct"),
        ("known-lambda-512", {PLAIN: made_up(0.62)}, "lambda_rr30_pct_512"),
        ("known-lambda-512", {PLAIN: made_up(0.56, passed=False)}, "occupancy_selftest"),
        (crowded_name(DATA[0], "interleaved-cautious"), {"x": made_up(0.06)}, "best_aegis_excess_rr_points"),
        (table_name(DATA[1], MATCHED, "interleaved-cautious"), {"x": made_up(0.30)}, "best_aegis_excess_rr_points"),
        ("mechanism-dp-sgd", {"one": made_up(0.0), "two": made_up(0.01)}, "dpsgd_eps8_rr30_pct"),
        ("guard-a", {"inspected": 600, "alarms": [{}]}, "guard_false_alarms"),
        ("guard-a", {"inspected": 499, "alarms": []}, "guard_false_alarms"),
    ],
)
def test_claim_is_open_when_its_cell_says_otherwise(cell: str, item: dict[str, Any], claim: str) -> None:
    claims = {found.id: found for found in leakage_claims({**everything(), cell: item})}

    assert [name for name, found in claims.items() if not found.met] == [claim]


def test_widest_excess_is_over_all_attacks_and_thresholds() -> None:
    cell = {"weak": made_up(0.02), "strong": made_up(0.05, guessed=0.02)}
    cell["weak"]["oracle"]["rates"][3] = made_up_rate(0.5, 0.1)

    widest = widest_excess(cell)

    assert (widest.attack, widest.threshold) == ("weak", "40 dB")
    assert widest.points == pytest.approx(40.0)


def test_page_json_and_table_are_written_without_what_was_not_measured(tmp_path: Path) -> None:
    results = everything()

    write_leakage_results(results, dict.fromkeys(results, MADE), tmp_path)

    page = (tmp_path / "06-leakage.md").read_text(encoding="utf-8")
    assert "18 dB, the paper's measure, misleads" in page
    assert "differential privacy" in page
    assert "## Through the sum" in page
    assert "| balanced | 20.0 (" in page
    assert "| as-train |" not in page
    assert "## What local training leaves" not in page
    content = json.loads((tmp_path / "06-leakage.json").read_text(encoding="utf-8"))
    assert {item["id"] for item in content["claims"]} == CLAIMS
    assert all(item["date"] for item in content["claims"])
    assert "histogram" not in content["cells"]["known-none"][PLAIN]["oracle"]


def test_attack_on_one_class_an_update_is_shown_beside_the_others_with_what_counting_says(tmp_path: Path) -> None:
    by_class = {"adaptive-classes": {"classes-2": made_up(0.31)}, class_name("as-train"): {"classes-5": made_up(0.66)}}
    results = everything() | by_class

    for folder, cells in (("with", results), ("alone", by_class)):
        write_leakage_results(cells, dict.fromkeys(cells, MADE), tmp_path / folder)

        page = (tmp_path / folder / "06-leakage.md").read_text(encoding="utf-8")
        assert "| classes-2 | none | 31.0 (" in page
        assert "| as-train, one class an update | 66.0 (" in page
        assert f"read to {100 * (1 - 1 / 1024) ** 527:.1f} % where all together are to 12.7 %" in page


def test_table_has_a_row_per_cell_and_attack() -> None:
    rows = list(csv.DictReader(io.StringIO(leakage_csv(everything()).decode())))

    assert len(rows) == 3 * len(DATA) + 1 + 4 + 2 + len(SIZES) + 2
    assert rows[0].keys() >= {"cell", "attack", "rr30", "rr30-low", "rr30-over-best-foreign", "verbatim"}


def test_cells_have_names_of_their_own_and_settings_that_are_a_trial() -> None:
    cells = leakage_cells(LEAKAGE_PARTS, data_root="nowhere")

    assert len({cell.name for cell in cells}) == len(cells)
    trials = [make_trial(cell.settings) for cell in cells if "masking" in cell.settings]
    assert len(trials) > 50
    assert all(len(trial.seeds) >= 3 for trial in trials)


def test_hospital_and_server_of_few_classes_have_images_of_these_alone_and_the_cache_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load_site(DataConfig(phantom_examples=600, partition="iid"), site=0, sites=1, seed=0)
    monkeypatch.setattr(leakage_sources, "load_own_folder", lambda data, seed: whole)
    pool = whole.train
    (tmp_path / "pools" / "adapted-phantom").mkdir(parents=True)
    np.savez(tmp_path / "pools" / "adapted-phantom" / "images.npz", images=pool.images, labels=pool.labels)

    world = load_world("phantom", "", "generator", tmp_path, classes=2, labels="balanced")

    held = set(world.real.labels.tolist())
    assert len(held) == 2
    assert set(world.auxiliary.labels.tolist()) == held
    assert world.info == whole.info
    drawn = world.draw_synthetic(40, np.arange(8), np.random.default_rng(0))
    assert np.bincount(drawn.labels).tolist() == [10] * 4


def test_unknown_setting_of_a_cell_is_an_error() -> None:
    with pytest.raises(ValueError, match="colour"):
        leakage_cell("x", "pneumoniamnist", "nowhere", [], colour="red")


def test_shortened_cells_make_the_same_page_without_the_curves(tmp_path: Path) -> None:
    low, high = wilson_interval(768, 1536)
    pairs = {"rates": [{"recovered": {"hits": 768, "count": 1536, "share": 0.5, "low": low, "high": high}}] * 5}
    evasion = {f"evasive-noise-{noise}": {**made_up(0.5), "hungarian": pairs} for noise in ("0.3", "1")}
    results = {**everything(), "adaptive-evasion": evasion}
    shortened = {name: lengthen(json.loads(json.dumps(shorten(cell)))) for name, cell in results.items()}

    for folder, cells in (("whole", results), ("short", shortened)):
        write_leakage_results(cells, dict.fromkeys(cells, MADE), tmp_path / folder)

    for name in ("06-leakage.md", "06-leakage.json", "06-leakage.csv"):
        assert (tmp_path / "short" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert f"{100 * low:.1f}-{100 * high:.1f}" in (tmp_path / "short" / "06-leakage.md").read_text()
    assert (tmp_path / "whole" / "06-leakage-curves.svg").is_file()
    assert not (tmp_path / "short" / "06-leakage-curves.svg").exists()
