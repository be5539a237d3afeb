"""Real Flower processes: `flwr run` and the virtual grid end with the same bits; a failed run fails the command."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from deploy.cli import main
from deploy.experiments.engines import compare_results, engine_cells

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.e2e


def flower_processes() -> set[int]:
    marks = ("flower-superlink", "flower-superexec", "flwr-simulation", "raylet", "gcs_server")
    found = set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        if any(mark in part for part in process.info["cmdline"] or [] for mark in marks):
            found.add(process.info["pid"])
    return found


def test_flwr_run_and_both_virtual_hand_overs_end_with_identical_parameters(tmp_path: Path) -> None:
    before = flower_processes()
    (cell,) = (cell for cell in engine_cells(ROOT) if cell.name == "engines-equal")

    result = compare_results(cell.settings, tmp_path)

    assert result["equal"], result["digests"]
    assert flower_processes() <= before


def test_failed_flower_run_exits_with_one_and_leaves_a_summary_that_says_why(tmp_path: Path) -> None:
    arguments = ["simulate", "--engine", "flower", "--hospitals", "2", "--app", str(ROOT), "--json"]
    diverging = ["training.optimizer=sgd", "training.learning-rate=1e30", "aggregation.max-empty-rounds=1"]
    diverging += ["guard.model=off"]  # It would refuse a model of such weights by itself.
    settings = [f"run.root={tmp_path}", *diverging, "data.phantom-examples=90", "data.phantom-classes=2"]

    result = CliRunner().invoke(main, [*arguments, *(part for text in settings for part in ("--set", text))])

    summary = json.loads(result.stdout)
    assert result.exit_code == 1
    assert summary["status"] == "failed"
    assert summary["refused"] == {"site-error:non-finite-update": 2}
