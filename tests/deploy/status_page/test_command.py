"""`aegis status` in a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.node.pause import is_paused, pause_path
from deploy.node.state import Phase, Restart
from deploy.status_page.command import status
from tests.client_app.ledger.place import release
from tests.deploy.status_page.made_up import Folders, state

ROOT = Path(__file__).parents[3]


def invoke(folders: Folders, command: str, *arguments: str) -> Result:
    kit = ["--kit", str(folders.kit)] if command == "show" else []
    return CliRunner().invoke(status, [command, "--policy", str(folders.policy), *kit, *arguments])


def tell_now(folders: Folders, **changes: object) -> None:
    now = time.time()
    folders.tell(state(**{"written": now, "last_contact": now - 12, "since": now, "started": now, **changes}))


def test_show_says_the_same_as_the_page_and_ends_with_0(folders: Folders) -> None:
    tell_now(folders)
    with folders.open_ledger() as ledger:
        release(ledger, "m1")

    result = invoke(folders, "show")

    text = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert "Connected to fl.example.org:443" in text
    assert "scans (linear account at delta 1e-05): spent 0.200 of 8, left 7.800" in text
    assert "Models trained: cnn." in text


def test_show_as_json_is_json_and_nothing_else(folders: Folders) -> None:
    tell_now(folders)

    content = json.loads(invoke(folders, "show", "--json").stdout)

    assert (content["hospital_id"], content["well"], content["connection"]["phase"]) == ("north", True, "connected")


def test_show_ends_with_1_where_somebody_is_needed(folders: Folders) -> None:
    tell_now(folders, phase=Phase.REFUSED)
    refused = invoke(folders, "show")
    tell_now(folders)
    folders.ledger.write_text("damaged")

    assert (refused.exit_code, invoke(folders, "show").exit_code) == (1, 1)


def test_show_lets_no_control_sequence_through(folders: Folders) -> None:
    now = time.time()
    tell_now(
        folders, phase=Phase.REFUSED, detail="\x1b]0;owned\x07[red]x", restarts=(Restart(time=now, reason="\x1b[2J"),)
    )

    text = invoke(folders, "show").stdout

    assert "?]0;owned?[red]x" in text
    assert "\x1b" not in text


def test_pause_and_resume_change_the_switch(folders: Folders) -> None:
    paused = invoke(folders, "pause")
    on, by = is_paused(folders.state), json.loads(pause_path(folders.state).read_text())["by"]
    resumed = invoke(folders, "resume", "--json")

    assert (paused.exit_code, on) == (0, True)
    assert by.startswith("the command line (user ")
    assert "north is paused" in paused.stdout
    assert json.loads(resumed.stdout) == {"status": "resumed", "hospital-id": "north"}
    assert not is_paused(folders.state)


def test_second_pause_leaves_the_first_ones_time(folders: Folders) -> None:
    invoke(folders, "pause")
    before = pause_path(folders.state).read_text()

    invoke(folders, "pause", "--json")

    assert pause_path(folders.state).read_text() == before


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_switch_without_a_usable_policy_is_wrong_usage(folders: Folders, command: str) -> None:
    folders.policy.write_text("broken")

    plain, as_json = invoke(folders, command), invoke(folders, command, "--json")

    assert (plain.exit_code, as_json.exit_code) == (2, 2)
    assert json.loads(as_json.stdout)["status"] == "refused"


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_switch_that_cannot_be_written_is_a_failure(folders: Folders, command: str) -> None:
    (folders.state / "node").write_text("not a folder")

    assert invoke(folders, command).exit_code == 1


def test_command_imports_neither_web_server_nor_templates_nor_torch() -> None:
    code = "import sys, deploy.status_page.command; print({'fastapi', 'uvicorn', 'jinja2', 'torch'} & set(sys.modules))"

    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert finished.stdout.strip() == "set()"
