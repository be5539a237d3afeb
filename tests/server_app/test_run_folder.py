"""The folder of a run: where things lie, what is written first, and how an older run is kept."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from federation.config import Configuration, parse_configuration
from server_app.run_folder import RunFolder
from tests.doubles import configure


def prepare(folder: Path, **settings: Any) -> tuple[RunFolder, Configuration]:
    configuration = configure(folder, **settings)
    run_folder = RunFolder.of(configuration.run)
    run_folder.prepare(configuration)
    return run_folder, configuration


def test_everything_lies_below_the_runs_name(tmp_path: Path) -> None:
    folder = RunFolder.of(configure(tmp_path, run__name="trial").run)

    assert folder.path == tmp_path / "trial"
    paths = [folder.checkpoints, folder.events, folder.summary, folder.report, folder.model]
    assert [path.relative_to(folder.path).as_posix() for path in paths] == [
        "checkpoints", "events.jsonl", "summary.json", "report.html", "model.safetensors",
    ]  # fmt: skip


def test_describing_a_folder_creates_nothing(tmp_path: Path) -> None:
    RunFolder.of(configure(tmp_path).run)

    assert list(tmp_path.iterdir()) == []


def test_relative_root_is_made_absolute_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.of(configure(Path("runs")).run)

    monkeypatch.chdir("/")

    assert folder.path == tmp_path / "runs" / "run"


def test_written_configuration_is_the_one_that_ran(tmp_path: Path) -> None:
    folder, configuration = prepare(tmp_path, training__learning_rate=0.1 + 0.2, run__hospital_ids="a, b")

    tables = tomllib.loads((folder.path / "config.toml").read_text())
    flat = {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}
    assert parse_configuration(flat) == configuration


def test_older_runs_are_moved_aside_under_the_next_free_number(tmp_path: Path) -> None:
    for number in range(3):
        folder, _ = prepare(tmp_path)
        (folder.path / "mark").write_text(str(number))

    marks = {path.name: (path / "mark").read_text() for path in tmp_path.iterdir()}
    assert marks == {"run.1": "0", "run.2": "1", "run": "2"}


def test_resuming_keeps_what_is_there(tmp_path: Path) -> None:
    folder, _ = prepare(tmp_path)
    (folder.checkpoints / "mark").write_text("x")

    prepare(tmp_path, run__resume=True)

    assert (folder.checkpoints / "mark").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
