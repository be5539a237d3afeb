"""`aegis coordinator` in a terminal: what people and programs see, and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.coordinator import superlink
from deploy.coordinator.command import coordinator
from deploy.coordinator.superlink import Answer
from deploy.flower_run import answers, free_port
from tests.deploy.coordinator.made_up import HOSTILE, NOW, answer, event, hospital, step, write_consortium, write_run
from tests.deploy.trust.founded import found
from tests.e2e.waiting import wait_until


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """What the SuperLink says, first entry; nobody else is asked."""
    said = [answer()]
    monkeypatch.setattr(superlink.SuperLink, "ask", lambda _: said[0])
    return said


def invoke(folder: Path, *arguments: str) -> Result:
    places = ["--consortium", str(folder / "consortium"), "--runs", str(folder / "runs")]
    return CliRunner().invoke(coordinator, ["show", *places, *arguments], env={"COLUMNS": "200"})


def test_all_well_exits_with_zero(tmp_path: Path, heard: list[Answer]) -> None:
    found(tmp_path / "consortium")

    result = invoke(tmp_path)

    assert result.exit_code == 0, result.output
    assert "Heart Network" in result.stdout
    assert "There is no run yet." in result.stdout


def test_finding_exits_with_one_and_is_told(tmp_path: Path, heard: list[Answer]) -> None:
    found(tmp_path / "consortium")
    heard[0] = Answer(asked_at=NOW, failure="The SuperLink was not reached: no route.")

    result = invoke(tmp_path)

    assert result.exit_code == 1
    assert "superlink: The SuperLink was not reached: no route." in result.stdout


def test_run_is_told_with_its_hospitals(tmp_path: Path, heard: list[Answer]) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"))
    write_run(tmp_path / "runs", "lungs", [event("start", 0), step(1, 4, a=2)])
    heard[0] = answer(a="online")

    result = invoke(tmp_path)

    assert "run lungs: in progress" in result.stdout
    assert "model version 4" in result.stdout
    assert "1 of 0" in result.stdout


def test_hostile_names_are_no_markup_in_the_terminal(tmp_path: Path, heard: list[Answer]) -> None:
    write_consortium(tmp_path / "consortium", name="[red]Lungs[/red]")
    refused = event("refusal", 1, hospital="[bold]x[/bold]", reason="[link=http://evil]y[/link]")
    write_run(tmp_path / "runs", "[blink]", [event("start", 0), refused])

    result = invoke(tmp_path)

    for text in ("[red]Lungs[/red]", "[bold]x[/bold]", "[link=http://evil]y[/link]", "run [blink]:"):
        assert text in result.stdout
    assert any(line.split()[:1] == ["[bold]x[/bold]"] for line in result.stdout.splitlines())


def test_json_is_everything_and_nothing_else(tmp_path: Path, heard: list[Answer]) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"))
    scores = {"accuracy": float("nan"), "auroc": None, "loss": None, "examples": 1}
    evaluated = event("evaluate", 2, version=4, central=scores, hospitals={HOSTILE: scores})
    write_run(tmp_path / "runs", "lungs", [event("start", 0), step(1, 4, a=2), evaluated])
    heard[0] = answer(a="offline")

    result = invoke(tmp_path, "--json")

    content: dict[str, Any] = json.loads(result.stdout, parse_constant=pytest.fail)
    assert result.exit_code == 1
    assert content["run"]["version"] == 4
    assert content["run"]["accuracy"] is None
    assert [seat["connection"] for seat in content["seats"]] == ["offline"]
    assert {item["subject"] for item in content["findings"]} >= {"a"}


def test_named_run_is_shown(tmp_path: Path, heard: list[Answer]) -> None:
    write_consortium(tmp_path / "consortium")
    write_run(tmp_path / "runs", "old", [event("start", 0), step(1, 3, a=0)], age_s=900)
    write_run(tmp_path / "runs", "new", [event("start", 0)], age_s=60)

    assert "run old:" in invoke(tmp_path, "--run", "old").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--run", "nothing"], "Expected the name of a run"),
        (["--flower-home", "/dev/null/nowhere"], "Flower's config.toml"),
        (["--consortium", "/dev/null/nowhere"], "to be a folder"),
    ],
)
def test_wrong_usage_exits_with_two_and_says_what_was_expected(
    tmp_path: Path, heard: list[Answer], arguments: list[str], expected: str
) -> None:
    write_consortium(tmp_path / "consortium")

    plain, as_json = invoke(tmp_path, *arguments), invoke(tmp_path, *arguments, "--json")

    assert (plain.exit_code, as_json.exit_code) == (2, 2)
    assert expected in " ".join(plain.stderr.split())
    content = json.loads(as_json.stdout)
    assert content["status"] == "refused"
    assert expected in content["reason"]


def test_connection_is_made_for_flower_and_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_consortium(tmp_path / "consortium")
    seen: list[tuple[Path, dict[str, Any], list[str]]] = []

    def ask(link: superlink.SuperLink) -> Answer:
        home = Path(link._environment["FLWR_HOME"])
        seen.append((home, tomllib.loads((home / "config.toml").read_text()), link._command))
        return answer()

    monkeypatch.setattr(superlink.SuperLink, "ask", ask)

    invoke(tmp_path, "--superlink", "inside:9000")

    ((home, content, command),) = seen
    connection = command[3]
    authority = str(tmp_path / "consortium" / "ca.crt")
    assert content["superlink"][connection] == {"address": "inside:9000", "root-certificates": authority}
    assert not home.exists()


def test_connection_of_ones_own_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_consortium(tmp_path / "consortium")
    own = tmp_path / "flower"
    own.mkdir()
    (own / "config.toml").write_text("[superlink]\n")
    seen: list[tuple[str, list[str]]] = []

    def ask(link: superlink.SuperLink) -> Answer:
        seen.append((link._environment["FLWR_HOME"], link._command))
        return answer()

    monkeypatch.setattr(superlink.SuperLink, "ask", ask)

    invoke(tmp_path, "--flower-home", str(own), "--connection", "main")

    assert seen == [(str(own), ["flwr", "supernode", "list", "main", "--format", "json"])]
    assert (own / "config.toml").read_text() == "[superlink]\n"


@pytest.mark.e2e
def test_served_page_answers_and_ends_when_told_to(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", name="Heart Network")
    port = free_port()
    code = "from deploy.coordinator.command import coordinator; coordinator()"
    places = ["--consortium", str(tmp_path / "consortium"), "--runs", str(tmp_path / "runs")]
    command = [
        sys.executable,
        "-c",
        code,
        "serve",
        *places,
        "--port",
        str(port),
        "--superlink",
        "127.0.0.1:9",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: answers(f"http://127.0.0.1:{port}/health"), "a page that is served")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answered:
                page = answered.read().decode()
        finally:
            process.terminate()
        told = json.loads(process.stdout.readline() if process.stdout else "")

    assert told == {"status": "serving", "address": f"http://127.0.0.1:{port}/"}
    assert "Heart Network" in page
    assert "The SuperLink was not reached" in page
