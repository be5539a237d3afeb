"""A SuperLink as Flower's commands reach it; the commands are a script that notes how it was called."""

from __future__ import annotations

import json
import sys
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from deploy.federate import superlink
from deploy.federate.superlink import SuperLink
from federation.errors import RunFailedError

SCRIPT = """#!/bin/sh
here="$(dirname "$0")"
printf '%s\\n' "$@" > "$here/arguments"
printf '%s\\n' "$FLWR_HOME" "$FLWR_TELEMETRY_ENABLED" > "$here/environment"
for last in "$@"; do :; done
case "$last" in *.toml) cp "$last" "$here/override.toml";; esac
[ -e "$here/hangs" ] && exec sleep 60
cat "$here/stdout"
cat "$here/stderr" >&2
exit "$(cat "$here/code")"
"""


def flwr_command() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from flwr.cli.app import app
    return get_command(app)


@dataclass
class Script:
    """The script that is called `flwr`."""

    folder: Path

    def says(self, stdout: str, *, stderr: str = "", code: int = 0) -> None:
        (self.folder / "stdout").write_text(stdout)
        (self.folder / "stderr").write_text(stderr)
        (self.folder / "code").write_text(str(code))

    def lists(self, *runs: dict[str, str]) -> None:
        self.says(json.dumps({"success": True, "runs": runs}))

    @property
    def arguments(self) -> list[str]:
        return (self.folder / "arguments").read_text().splitlines()

    def parse(self) -> dict[str, Any]:
        """Return what Flower's own parser makes of the arguments."""
        command, names = flwr_command(), self.arguments
        while hasattr(command, "commands"):
            command, names = command.commands[names[0]], names[1:]
        with command.make_context("flwr", names) as context:
            assert not context.args
            given: dict[str, Any] = context.params
            return given


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Return a script that comes before every other `flwr`, as the environment of this Python would."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "flwr").write_text(SCRIPT)
    (folder / "flwr").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    made = Script(folder)
    made.says("")
    return made


@pytest.fixture
def link(tmp_path: Path) -> SuperLink:
    return SuperLink(tmp_path / "home", "superlink:8000", tmp_path / "ca.crt")


def test_connection_trusts_the_consortiums_authority_and_no_other(link: SuperLink, tmp_path: Path) -> None:
    content = tomllib.loads((tmp_path / "home" / "config.toml").read_text())

    assert content == {
        "superlink": {
            "default": "aegis",
            "aegis": {"address": "superlink:8000", "root-certificates": str(tmp_path / "ca.crt")},
        }
    }


def test_authority_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    SuperLink(tmp_path / "home", "superlink:8000", Path("ca.crt"))

    content = tomllib.loads((tmp_path / "home" / "config.toml").read_text())
    assert content["superlink"]["aegis"]["root-certificates"] == str(tmp_path / "ca.crt")


def test_submitted_run_is_known_by_the_id_that_flower_prints(script: Script, link: SuperLink, tmp_path: Path) -> None:
    script.says("Loading project configuration...\nSuccess\n🎊 Successfully started run 7350318482\n")

    run_id = link.submit(tmp_path / "app", {"run.name": "lungs", "run.resume": True, "aggregation.rounds": 3})

    assert run_id == "7350318482"
    given = script.parse()
    assert (given["app"], given["superlink"]) == (str(tmp_path / "app"), "aegis")
    assert tomllib.loads((script.folder / "override.toml").read_text()) == {
        "run": {"name": "lungs", "resume": True},
        "aggregation": {"rounds": 3},
    }
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["config.toml"]


def test_commands_are_flowers_at_home_in_the_folder_and_offline(
    script: Script, link: SuperLink, tmp_path: Path
) -> None:
    link.flwr("list")

    assert (script.folder / "environment").read_text().splitlines() == [str(tmp_path / "home"), "0"]


@pytest.mark.parametrize("code", [0, 1])
def test_run_that_is_not_taken_is_told_with_flowers_words(
    script: Script, link: SuperLink, tmp_path: Path, code: int
) -> None:
    script.says("Connection to the SuperLink is unavailable.", stderr="Error: try again", code=code)

    with pytest.raises(
        RunFailedError, match=r"Expected the SuperLink to start a run, found: .*is unavailable\."
    ) as caught:
        link.submit(tmp_path / "app", {"run.name": "lungs"})

    assert ("try again" in str(caught.value)) is (code == 1)


def test_status_of_a_run_is_the_one_that_flower_lists(script: Script, link: SuperLink) -> None:
    script.lists({"run-id": "77", "status": "finished:completed"})

    assert link.status("77") == "finished:completed"
    given = script.parse()
    assert (given["superlink"], given["run_id"], given["output_format"]) == ("aegis", 77, "json")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Error: Connection to the SuperLink is unavailable.",
        json.dumps({"success": False, "error-message": "Run ID 77 not found"}),
        json.dumps({"success": True, "runs": None}),
        json.dumps({"success": True, "runs": "none"}),
        json.dumps(["runs"]),
    ],
)
def test_status_is_not_known_while_the_superlink_lists_no_runs(script: Script, link: SuperLink, output: str) -> None:
    script.says(output)

    assert link.status("77") is None


def test_run_that_the_superlink_does_not_know_has_ended(script: Script, link: SuperLink) -> None:
    script.lists()

    assert link.status("77") == "finished:unknown"


def test_newest_run_that_has_not_finished_goes_on(script: Script, link: SuperLink) -> None:
    script.lists(
        {"run-id": "4", "status": "finished:failed"},
        {"run-id": "3", "status": "running"},
        {"run-id": "2", "status": "pending"},
        {"run-id": "1", "status": "finished:completed"},
    )

    assert link.unfinished() == "3"
    assert script.parse()["output_format"] == "json"


@pytest.mark.parametrize("statuses", [[], ["finished:completed", "finished:stopped", "finished:failed"]])
def test_no_run_goes_on_where_all_have_finished(script: Script, link: SuperLink, statuses: list[str]) -> None:
    script.lists(*({"run-id": str(number), "status": status} for number, status in enumerate(statuses)))

    assert link.unfinished() is None


def test_superlink_that_lists_nothing_is_not_taken_for_one_without_runs(script: Script, link: SuperLink) -> None:
    script.says("Error: Connection to the SuperLink is unavailable.", code=1)

    with pytest.raises(RunFailedError, match="Expected the SuperLink at superlink:8000 to list its runs"):
        link.unfinished()


def test_registered_hospitals_are_listed(script: Script, link: SuperLink) -> None:
    nodes = [{"node-id": "1", "status": "online"}]
    script.says(json.dumps({"success": True, "nodes": nodes}))

    assert link.nodes() == nodes
    assert script.arguments[:2] == ["supernode", "list"]
    given = script.parse()
    assert (given["superlink"], given["output_format"]) == ("aegis", "json")


def test_command_that_hangs_is_given_up(script: Script, link: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superlink, "_LIMIT_S", 0.2)
    (script.folder / "hangs").touch()

    with pytest.raises(RunFailedError, match=r"Expected an answer of superlink:8000 within 0\.2 s, found none"):
        link.flwr("list")

    assert link.status("77") is None
