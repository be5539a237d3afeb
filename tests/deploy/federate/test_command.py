"""`aegis federate run`: the run's tables, how it ends, and what is printed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.federate import command
from deploy.federate.keeper import Keeper
from deploy.federate.superlink import SuperLink
from federation.errors import RunFailedError
from server_app.summary import Summary
from tests.deploy.federate.made_up_runs import summary


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Keeper]:
    """Return the keepers that were asked to keep their run, which each does at once."""
    keepers: list[Keeper] = []

    def keep(self: Keeper, *, again: bool = False) -> Summary:
        keepers.append(self)
        self.tell("submitted", {"run": "77"})
        return summary(version=9)

    monkeypatch.setattr(Keeper, "keep", keep)
    return keepers


def run(folder: Path, *arguments: str) -> Result:
    common = ["run", "--app", str(folder), "--set", f'run.root="{folder}"', "--set", "run.name=lungs"]
    return CliRunner().invoke(command.federate, [*common, *arguments])


def test_run_is_kept_with_the_tables_of_the_file_and_of_the_command_line(kept: list[Keeper], tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text("[aggregation]\nrounds = 7\n")

    result = run(tmp_path, "--config", str(config), "--set", "model.name=mlp", "--attempts", "3")

    assert result.exit_code == 0
    [keeper] = kept
    assert keeper.configuration.aggregation.rounds == 7
    assert keeper.configuration.model.name == "mlp"
    assert (keeper.app, keeper.attempts) == (tmp_path, 3)
    assert "lungs: completed, version 9" in result.stdout


def test_superlink_is_the_one_that_was_named(
    kept: list[Keeper], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []

    class Seen(SuperLink):
        def __init__(self, home: Path, address: str, authority: Path) -> None:
            super().__init__(home, address, authority)
            made.append(tomllib.loads((home / "config.toml").read_text()))

    monkeypatch.setattr(command, "SuperLink", Seen)
    run(tmp_path, "--superlink", "elsewhere:9000", "--ca", "/srv/ca.crt")

    assert made[0]["superlink"]["aegis"] == {"address": "elsewhere:9000", "root-certificates": "/srv/ca.crt"}
    assert isinstance(kept[0].runs, Seen)
    assert not kept[0].runs.home.exists()


def test_summary_is_json_where_it_is_asked_for_and_events_go_elsewhere(kept: list[Keeper], tmp_path: Path) -> None:
    result = run(tmp_path, "--json")

    assert Summary.model_validate_json(result.stdout).model_version == 9
    event = json.loads(result.stderr)
    assert (event["event"], event["run"]) == ("submitted", "77")


@pytest.mark.parametrize("as_json", [True, False])
def test_run_that_failed_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    def keep(self: Keeper, *, again: bool = False) -> Summary:
        raise RunFailedError("Run 77 was stopped.")

    monkeypatch.setattr(Keeper, "keep", keep)
    result = run(tmp_path, *(["--json"] if as_json else []))

    assert result.exit_code == 1
    if as_json:
        assert json.loads(result.stdout) == {"status": "failed", "reason": "Run 77 was stopped."}
    else:
        assert "Run 77 was stopped." in result.stderr


def test_configuration_that_cannot_be_used_ends_with_2(kept: list[Keeper], tmp_path: Path) -> None:
    result = run(tmp_path, "--set", "model.nmae=mlp")

    assert result.exit_code == 2
    assert kept == []
