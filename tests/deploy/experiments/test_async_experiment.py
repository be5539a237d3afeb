"""The asynchronous page: its measures on curves with known answers, its claims, tables and plots on made-up cells."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import main
from deploy.experiments import async_ladder, async_sweep
from deploy.experiments.async_experiment import CHAPTERS, SLUG, async_cells, async_claims, write_async_results
from deploy.experiments.async_settings import RATES, RULES, tuned
from deploy.experiments.async_speedup import cell_name
from deploy.experiments.cells import Cell, CellStore, describe_making
from federation.config import Configuration, flatten, parse_configuration
from tests.deploy.experiments.made_up_cells import curve, made_up

PARTS = [name for chapter in CHAPTERS for name in chapter.parts]
CLAIM_IDS = [
    "straggler8_speedup_median",
    "straggler8_speedup_min",
    "straggler8_worst_gap_points",
    "straggler20_speedup_median",
    "field_case_recall_gap_points",
    "dp_async_loss_points",
]


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return async_cells(PARTS, "/data", Path("/source"))


@pytest.fixture(scope="module")
def results(cells: list[Cell]) -> dict[str, dict[str, Any]]:
    return {cell.name: made_up(cell) for cell in cells if "train_s" in cell.settings}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AEGIS_TEST_DATA", raising=False)
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["experiment", *arguments])


def test_every_claim_is_there_before_anything_is_measured() -> None:
    claims = async_claims({})

    assert [item.id for item in claims if item.id in CLAIM_IDS] == CLAIM_IDS
    assert all(item.value is None and not item.met for item in claims)


def test_claims_take_the_worse_data_set(results: dict[str, Any]) -> None:
    changed = dict(results)
    for seed in range(5):
        name = cell_name("pneumonia", "ours", 8, seed)
        changed[name] = {**results[name], "curve": curve(11 + seed, 60.0)}

    claims = {item.id: item for item in async_claims(changed)}

    assert claims["straggler8_speedup_median"].value == pytest.approx(40 / 13)
    assert claims["straggler8_speedup_min"].value == pytest.approx(40 / 15)
    assert claims["straggler20_speedup_median"].value == pytest.approx(40 * 2.5 / 6)
    assert claims["straggler8_worst_gap_points"].value == pytest.approx(1.0)
    assert claims["straggler8_speedup_min"].cells[0] == "straggler-pneumonia-ours-8x-0"


def test_loss_of_noise_and_asynchrony_is_claimed_at_the_strictest_epsilon(results: dict[str, Any]) -> None:
    item = {item.id: item for item in async_claims(results)}["dp_async_loss_points"]

    assert item.value == pytest.approx(2.0)
    assert "0.00 at epsilon 8, 2.00 at epsilon 4" in item.note


def test_every_setting_is_a_valid_configuration(cells: list[Cell]) -> None:
    mine = [cell for cell in cells if "train_s" in cell.settings]

    for cell in mine:
        parse_configuration({**flatten(Configuration()), **cell.settings["configuration"]})

    assert len({cell.name for cell in mine}) == len(mine) > 300


def test_no_table_uses_a_seed_that_rates_were_chosen_on(cells: list[Cell]) -> None:
    seeds: Callable[[bool], set[int]] = lambda tuning: {  # noqa: E731
        cell.settings["configuration"]["run.seed"]
        for cell in cells
        if "train_s" in cell.settings and cell.name.startswith("tuning-") == tuning
    }

    assert not seeds(True) & seeds(False)


def test_tables_use_the_tuned_rates() -> None:
    for data, chosen in RATES.items():
        for rule in set(RULES) - {"fedavg-drop"}:
            local, server = chosen[rule]
            settings = tuned(rule, data)
            assert (settings["training.learning-rate"], settings["aggregation.server-learning-rate"]) == (local, server)
        assert tuned("fedavg-drop", data)["training.learning-rate"] == chosen["fedavg"][0]


def test_recommended_decay_is_the_best_of_its_noise_level_with_those_that_cannot_be_ranked() -> None:
    accuracy = {0.85: 0.80, 0.9: 0.85, 0.93: 0.849, 0.95: 0.82, 1.0: 0.7}
    results = {
        f"sweep-8-{decay:g}-{seed}": {"curve": [[60.0, value + 0.002 * seed]]}
        for decay, value in accuracy.items()
        for seed in async_sweep.SEEDS
    }

    section = "\n".join(async_sweep.sweep_section(results))

    assert "| 8 | 80.20 | 85.20 | 85.10 | 82.20 | 70.20 | 0.9 (0.93 as good) |" in section


def test_page_holds_every_table_and_its_plots(results: dict[str, Any], tmp_path: Path) -> None:
    made = dict.fromkeys(results, describe_making())

    write_async_results(results, made, tmp_path)

    page = (tmp_path / f"{SLUG}.md").read_text()
    assert "### OrganAMNIST, 20 times slower" in page
    assert "| ours | 6 | 8 | 6.7 (6.7 to 6.7) | 89.0 ± 0.0 | 79.0 ± 0.0 | 79.0 ± 0.0 | 1.5, at most 9 | 5 |" in page
    assert "| PneumoniaMNIST | ours, a quarter of the time | 84.00 ± 0.00 | 1.00 ± 0.00 |" in page
    assert "| both, epsilon 4 | 88.00 ± 0.00 | 2.00 ± 0.00 |" in page
    assert "How the learning rates were chosen" in page
    for plot in ("straggler-8x", "straggler-20x", "sweep"):
        assert (tmp_path / f"{SLUG}-{plot}.svg").read_text().startswith("<?xml")
        assert f"{SLUG}-{plot}.svg" in page
    written = json.loads((tmp_path / f"{SLUG}.json").read_text())
    assert len(written["cells"]) == len(results)
    assert {item["id"] for item in written["claims"] if item["met"]} >= {"straggler8_speedup_median"}


def test_page_without_results_names_the_claims_only(tmp_path: Path) -> None:
    write_async_results({}, {}, tmp_path)

    page = (tmp_path / f"{SLUG}.md").read_text()
    assert page.count("not measured") >= len(CLAIM_IDS)
    assert "##" not in page
    assert not list(tmp_path.glob("*.svg"))


@pytest.mark.parametrize(("command", "foreign"), [("straggler", "sweep"), ("ladder", "field"), ("sweep", "nonsense")])
def test_part_of_another_command_is_wrong_usage(tree: Path, command: str, foreign: str) -> None:
    result = invoke(command, "--part", foreign)

    assert result.exit_code == 2
    assert f"found {foreign}" in " ".join(result.stderr.split())


def test_one_command_keeps_the_results_of_the_others(tree: Path, results: dict[str, Any]) -> None:
    store = CellStore(tree / "runs" / "experiments" / SLUG)
    for cell in async_cells(["ladder", "sweep"], "", tree):
        store.keep(cell, results[cell.name], describe_making())

    outcome = invoke("ladder", "--json")

    claims = {item["id"]: item for item in json.loads(outcome.stdout)}
    assert claims["dp_async_loss_points"]["value"] == pytest.approx(2.0)
    assert claims["straggler8_speedup_min"]["value"] is None
    assert "Noise against decay" in (tree / "docs" / "results" / f"{SLUG}.md").read_text()


def test_fresh_forgets_the_own_chapter_only(
    tree: Path, results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CellStore(tree / "runs" / "experiments" / SLUG)
    for cell in async_cells(["ladder", "sweep"], "", tree):
        store.keep(cell, results[cell.name], describe_making())
    monkeypatch.setattr("deploy.experiments.experiment.run_cells", lambda *_, **__: {})

    invoke("ladder", "--fresh")

    left = {path.stem.partition("-")[0] for path in store.folder.glob("*.json")}
    assert left == {"sweep"}
    assert async_ladder.RUNGS
