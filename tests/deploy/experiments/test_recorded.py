"""Cells that a results page records: they stay on the page as long as their settings are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim, claims_as_json
from deploy.experiments.experiment import Experiment, run_experiment
from deploy.experiments.recorded import digest_settings, recorded_cells

NAMES = ("left", "right")


def measure(settings: dict[str, Any], folder: Path) -> Result:
    """Return the number of the settings."""
    del folder
    return {"number": settings["number"]}


def cells(parts: list[str], root: str, number: int = 1) -> list[Cell]:
    settings = {"root": root, "number": number, "configuration": {"data.root": root, "model.name": "mlp"}}
    return [Cell(name=name, compute=measure, settings=settings, alone=True) for name in NAMES if name in parts]


def claims(results: dict[str, Result]) -> list[Claim]:
    return [
        claim(name, "stated", [results[name]["number"]] if name in results else [], unit="", command="", cells=[name])
        for name in NAMES
    ]


def write(results: dict[str, Result], made: dict[str, dict[str, str]], folder: Path) -> None:
    content = {
        "claims": claims_as_json(claims(results), made),
        "cells": {name: {"made": made[name], **result} for name, result in results.items()},
    }
    (folder / "99-sides.json").write_text(json.dumps(content))


def run_part(source: Path, part: str, *, number: int = 1, root: str = "", fresh: bool = False) -> dict[str, Any]:
    """Measure one part in `source` and return the claims of the page by id."""
    experiment = Experiment(
        slug="99-sides",
        parts=NAMES,
        cells=lambda parts, data_root, _: cells(list(parts), data_root, number),
        claims=claims,
        write=write,
    )
    run_experiment(experiment, part=[part], data_root=root, jobs=1, fresh=fresh, as_json=True)
    page = json.loads((source / "docs" / "results" / "99-sides.json").read_text())
    return {item["id"]: item["value"] for item in page["claims"]}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a source tree whose page records the left cell, measured on a machine whose runs are gone."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "docs" / "results").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    run_part(tmp_path, "left", root="/there")
    for path in sorted((tmp_path / "runs").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    return tmp_path


def test_measuring_one_part_keeps_the_others_on_the_page(source: Path) -> None:
    assert run_part(source, "right", root="/here") == {"left": 1, "right": 1}


def test_cell_of_other_settings_leaves_the_page(source: Path) -> None:
    assert run_part(source, "right", number=2) == {"left": None, "right": 2}


def test_fresh_forgets_what_the_page_records(source: Path) -> None:
    assert run_part(source, "right", fresh=True) == {"left": None, "right": 1}


def test_kept_cell_says_who_made_it(source: Path) -> None:
    page = source / "docs" / "results" / "99-sides.json"
    before = json.loads(page.read_text())
    before["cells"]["left"]["made"]["machine"] = "another machine"
    page.write_text(json.dumps(before))

    run_part(source, "right")

    after = json.loads(page.read_text())
    assert after["cells"]["left"]["made"]["machine"] == "another machine"
    assert next(item["machine"] for item in after["claims"]) == "another machine"
    assert after["cells"]["right"]["made"]["machine"] != "another machine"


def test_own_measurement_replaces_a_recorded_one(source: Path) -> None:
    page = source / "docs" / "results" / "99-sides.json"
    page.write_text(page.read_text().replace('"number": 1', '"number": 7'))

    assert run_part(source, "right")["left"] == 7
    assert run_part(source, "left")["left"] == 1


def test_page_that_is_not_there_records_nothing(tmp_path: Path) -> None:
    assert recorded_cells(tmp_path / "none.json", cells(["left"], ""), dict) == {}


def test_page_without_settings_records_nothing(source: Path) -> None:
    page = source / "docs" / "results" / "99-sides.json"
    content = json.loads(page.read_text())
    del content["cells"]["left"]["made"]["settings"]
    page.write_text(json.dumps(content))

    assert recorded_cells(page, cells(["left"], ""), dict) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"root": "/b", "seeds": [0, 1], "configuration": {"model.name": "cnn", "data.root": "/a"}},
        {"seeds": (0, 1), "root": "/b", "configuration": {"data.root": "/a", "model.name": "cnn"}},
    ],
)
def test_order_kind_of_sequence_and_place_of_data_do_not_count(other: dict[str, Any]) -> None:
    first = {"root": "/a", "seeds": (0, 1), "configuration": {"data.root": "/c", "model.name": "cnn"}}

    assert digest_settings(first) == digest_settings(other)


def test_every_other_setting_counts() -> None:
    first: dict[str, Any] = {"root": "/a", "seeds": [0, 1], "configuration": {"model.name": "cnn"}}
    changed = [
        {**first, "seeds": [1, 0]},
        {**first, "configuration": {"model.name": "mlp"}},
        {**first, "epochs": 1},
    ]

    assert len({digest_settings(item) for item in [first, *changed]}) == 4
