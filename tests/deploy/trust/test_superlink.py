"""What Flower's commands are told, and how their answers are read."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from deploy.trust.superlink import RegistrationError, SuperLink
from federation.errors import ConfigurationError


def answering(monkeypatch: pytest.MonkeyPatch, stdout: str, *, code: int = 0, stderr: str = "") -> list[dict[str, Any]]:
    """Let every command answer with `stdout`; return the list of what was run."""
    calls: list[dict[str, Any]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        keys = [Path(part).read_text() for part in command if part.endswith(".pub")]
        calls.append({"command": command, "keys": keys, **options})
        return subprocess.CompletedProcess(command, code, stdout, stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


@pytest.fixture
def superlink(tmp_path: Path) -> SuperLink:
    return SuperLink("superlink:8000", authority=tmp_path / "ca.crt", home=tmp_path / "home")


def test_connection_trusts_the_authority_alone(superlink: SuperLink, tmp_path: Path) -> None:
    superlink.write_connection()

    content = tomllib.loads((tmp_path / "home" / "config.toml").read_text())

    assert content["superlink"] == {
        "default": "aegis",
        "aegis": {"address": "superlink:8000", "root-certificates": str(tmp_path / "ca.crt")},
    }


def test_path_of_the_authority_is_absolute_as_flower_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    SuperLink("superlink:8000", authority=Path("ca.crt"), home=Path("home")).write_connection()

    content = tomllib.loads((tmp_path / "home" / "config.toml").read_text())
    assert content["superlink"]["aegis"]["root-certificates"] == str(tmp_path / "ca.crt")


def test_other_connections_are_kept(superlink: SuperLink, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('[superlink]\ndefault = "mine"\n[superlink.mine]\naddress = "x:1"\n')

    superlink.write_connection()

    content = tomllib.loads((tmp_path / "home" / "config.toml").read_text())["superlink"]
    assert (content["default"], content["mine"], set(content)) == (
        "mine",
        {"address": "x:1"},
        {"default", "mine", "aegis"},
    )


def test_settings_that_are_no_toml_are_left_alone(superlink: SuperLink, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[")

    with pytest.raises(ConfigurationError, match=r"config.toml cannot be read"):
        superlink.write_connection()

    assert (tmp_path / "home" / "config.toml").read_text() == "["


def test_commands_keep_to_the_home_stay_offline_and_use_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org")
    calls = answering(monkeypatch, '{"success": true}')

    SuperLink("superlink:8000", authority=tmp_path / "ca.crt", home=tmp_path / "home").unregister("7")

    (call,) = calls
    assert call["command"] == ["flwr", "supernode", "unregister", "7", "aegis", "--format", "json"]
    environment = call["env"]
    assert (environment["FLWR_HOME"], environment["FLWR_TELEMETRY_ENABLED"]) == (str(tmp_path / "home"), "0")
    assert environment["NO_PROXY"] == environment["no_proxy"] == "example.org,superlink"


def test_key_is_registered_under_the_name_of_its_hospital(
    superlink: SuperLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = answering(monkeypatch, '{"success": true, "node-id": 7}')

    superlink.register("ecdsa-sha2-nistp384 AAAA", "north")

    assert calls[0]["keys"] == ["ecdsa-sha2-nistp384 AAAA\n"]
    assert calls[0]["command"][4:] == ["aegis", "--name", "north", "--format", "json"]


@pytest.mark.parametrize(
    "stdout", ['{"success": false, "error-message": "already in use"}', "already in use", "[]", ""]
)
def test_refusal_that_ends_with_exit_status_zero_is_one(
    superlink: SuperLink, monkeypatch: pytest.MonkeyPatch, stdout: str
) -> None:
    answering(monkeypatch, stdout)

    with pytest.raises(RegistrationError, match="superlink:8000 to unregister node 7, found"):
        superlink.unregister("7")


def test_command_that_fails_is_told_with_the_end_of_its_words(
    superlink: SuperLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, "", code=1, stderr=f"{'x' * 1000}\nConnection refused")

    with pytest.raises(RegistrationError, match=r"to tell its nodes, found: x+ Connection refused$") as caught:
        superlink.nodes()

    assert len(str(caught.value)) < 700


def test_command_that_never_answers_is_ended(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", wait)

    with pytest.raises(RegistrationError, match="no answer within 120 s"):
        superlink.nodes()


def test_node_whose_key_openssh_cannot_write_has_none(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(
        monkeypatch, '[{"id": "7", "key": "x", "status": "online"}, {"id": "8", "key": "", "status": "unregistered"}]'
    )

    first, second = superlink.nodes()

    assert (first.id, first.key, first.living, second.living) == ("7", "", True, False)
