"""`aegis experiment`: wrong usage is refused, finished cells are enough to write the results page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import main
from deploy.experiments.cells import CellStore, describe_making
from deploy.experiments.fedavg import fedavg_cells

SCORES = {"final": {"accuracy": 0.9, "auroc": 0.97}, "worst_hospital": "a", "worst_accuracy": 0.8, "wall_s": 1.0}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AEGIS_TEST_DATA", raising=False)
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["experiment", "fedavg", *arguments])


def test_unknown_part_is_wrong_usage(tree: Path) -> None:
    result = invoke("--part", "nonsense")

    assert result.exit_code == 2
    assert "found nonsense" in " ".join(result.stderr.split())


def test_experiment_outside_the_source_tree_is_wrong_usage(tree: Path) -> None:
    (tree / "pyproject.toml").unlink()

    result = invoke("--part", "s1")

    assert result.exit_code == 2
    assert "no pyproject.toml" in " ".join(result.stderr.split())


def test_finished_cells_become_claims_with_their_seeds_and_makers(tree: Path) -> None:
    store = CellStore(tree / "runs" / "experiments" / "01-fedavg")
    cells = fedavg_cells(["pneumonia"], data_root="", source=tree)
    for cell in cells:
        better = 0.02 if "central" in cell.name else 0.0
        final = {"accuracy": 0.9 + better, "auroc": 0.97}
        store.keep(cell, {**SCORES, "final": final, "median_accuracy": 0.85, "curve": []}, describe_making())

    result = invoke("--part", "pneumonia", "--json")

    claims = {item["id"]: item for item in json.loads(result.stdout)}
    assert claims["pneumonia_accuracy_gap_points"]["value"] == pytest.approx(2.0)
    assert claims["pneumonia_accuracy_gap_points"]["seeds"] == [0, 1, 2]
    assert claims["pneumonia_auroc"]["machine"]
    assert claims["organa_accuracy"]["value"] is None
    assert json.loads((tree / "docs" / "results" / "01-fedavg.json").read_text())["claims"] == list(claims.values())
    assert "| pneumonia-1 | 0.900 | 0.970 |" in (tree / "docs" / "results" / "01-fedavg.md").read_text()
