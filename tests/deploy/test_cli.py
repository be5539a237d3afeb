"""`aegis` where a subcommand's package was left out, as a hospital's image does."""

from __future__ import annotations

import sys

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy import cli


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, [*arguments], env={"COLUMNS": "400"})


@pytest.fixture
def at_a_hospital(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("attacks", "deploy.attack", "deploy.experiments"):
        for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.usefixtures("at_a_hospital")
@pytest.mark.parametrize("arguments", [("attack", "list"), ("attack", "--help"), ("experiment", "deployment")])
def test_subcommand_that_was_left_out_says_so_and_ends_with_2(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)

    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert f"aegis {arguments[0]} is not part of this installation: a hospital's image holds no attack" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.usefixtures("at_a_hospital")
def test_subcommands_that_were_left_out_are_not_listed_and_the_others_are() -> None:
    result = invoke("--help")

    listed = {line.split()[1] for line in result.stdout.splitlines() if line.startswith("\u2502 ") and line[2] != " "}
    assert result.exit_code == 0, result.output
    assert set(cli.COMMANDS) - {"attack", "experiment"} <= listed
    assert not listed & {"attack", "experiment"}


def test_module_that_a_subcommand_lacks_keeps_its_own_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "deploy.attack.command", raising=False)
    monkeypatch.setitem(sys.modules, "deploy.attack.options", None)
    # A package keeps what was imported of it as attributes, which an import takes first.
    monkeypatch.delattr("deploy.attack.options", raising=False)

    result = invoke("attack", "list")

    assert isinstance(result.exception, ImportError)
    assert "deploy.attack" in str(result.exception)


def test_subcommand_that_nobody_knows_is_told_from_one_that_was_left_out() -> None:
    result = invoke("atack")

    assert result.exit_code == 2
    assert "No such command" in result.stderr
