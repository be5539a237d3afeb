"""`aegis enrol`: exit codes, and the same for people and machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.trust import command
from deploy.trust.command import enrol
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.hospital_key import fingerprint, make_key, private_file, public_line
from deploy.trust.manifest import verify_folder
from deploy.trust.registration import Registration
from deploy.trust.signing import VerificationError, read_public_key
from deploy.trust.superlink import RegistrationError


def invoke(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(enrol, [*arguments, "--folder", str(folder)])


def content(folder: Path, *arguments: str, code: int = 0) -> Any:
    result = invoke(folder, *arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert invoke(tmp_path / "consortium", "init", "Heart Network", "--host", "fl.example.org").exit_code == 0
    return tmp_path / "consortium"


def test_consortium_is_founded_with_its_names_and_port(tmp_path: Path) -> None:
    options = ["--host", "10.0.0.1", "--port", "443", "--san", "a.example", "--san", "b.example", "--days", "30"]

    found = content(
        tmp_path / "c", "init", "Heart Network", *options, "--internal-san", "link", "--days-internal", "60"
    )

    consortium = ConsortiumFolder(path=tmp_path / "c").read()
    assert (consortium.host, consortium.port, consortium.sans) == ("10.0.0.1", 443, ("a.example", "b.example"))
    assert consortium.internal_sans == ("link",)
    left = {item["which"]: item["days-left"] for item in found["certificates"]}
    assert (left["server"], left["superlink"]) == (29, 59)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["init", "Heart Network", "--host", "a b"], "name of a host"),
        (["init", "Heart Network", "--host", "a", "--port", "0"], "greater than or equal to 1"),
        (["hospital", "north"], "aegis enrol init makes it"),
        (["show"], "aegis enrol init makes one"),
        (["register"], "aegis enrol init makes one"),
    ],
)
def test_wrong_usage_exits_with_two_and_its_reason(tmp_path: Path, arguments: list[str], reason: str) -> None:
    found = content(tmp_path / "c", *arguments, code=2)

    assert (found["status"], reason in found["reason"]) == ("refused", True)


def test_second_consortium_in_the_same_folder_is_refused(folder: Path) -> None:
    result = invoke(folder, "init", "Other", "--host", "other.example")

    assert result.exit_code == 2
    assert "no consortium is ever overwritten" in " ".join(result.stderr.split())


def test_hospital_is_told_with_the_fingerprint_of_its_key_and_what_to_do_with_the_kit(folder: Path) -> None:
    result = invoke(folder, "hospital", "north")

    key = ConsortiumFolder(path=folder).read().find("north").public_key
    assert result.exit_code == 0
    assert fingerprint(key) in result.stdout
    assert "hand it over in confidence" in result.stdout


def test_hospital_that_brings_its_key_is_enrolled_with_it(folder: Path, tmp_path: Path) -> None:
    line = public_line(make_key().public_key())
    (tmp_path / "own.pub").write_text(f"{line} it@hospital\n")

    found = content(
        folder, "hospital", "north", "--public-key", str(tmp_path / "own.pub"), "--out", str(tmp_path / "kit")
    )

    assert (found["fingerprint"], found["has-private-key"]) == (fingerprint(line), False)
    assert (tmp_path / "kit" / "node.key.pub").read_text() == f"{line}\n"


def test_private_key_given_for_a_public_one_is_refused_and_nobody_enrolled(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(private_file(make_key()))

    found = content(folder, "hospital", "north", "--public-key", str(tmp_path / "own"), code=2)

    assert "found a private one" in found["reason"]
    assert ConsortiumFolder(path=folder).read().hospitals == ()


def test_kit_says_when_the_installation_has_no_compose_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "read_compose", str)

    result = invoke(folder, "hospital", "north")

    assert "The kit has no compose.yaml" in result.stdout
    assert not list((folder / "kits" / "north").glob("compose*"))


def test_hospital_changes_its_key_and_goes(folder: Path) -> None:
    first = content(folder, "hospital", "north")
    second = content(folder, "rekey", "north")
    retired = content(folder, "retire", "north")
    revoked = content(folder, "revoke", "north")
    refused = content(folder, "rekey", "north", code=2)
    again = content(folder, "rekey", "north", "--readmit")

    assert len({first["fingerprint"], second["fingerprint"], again["fingerprint"]}) == 3
    assert retired["fingerprint"] == second["fingerprint"]
    assert revoked["revoked"] == ConsortiumFolder(path=folder).read().find("north").enrolled
    assert "--readmit" in refused["reason"]
    (hospital,) = content(folder, "show")["hospitals"]
    assert (hospital["fingerprint"], hospital["revoked"]) == (again["fingerprint"], "")


def test_show_exits_with_one_when_something_needs_a_hand_and_zero_after_it_was_renewed(folder: Path) -> None:
    content(folder, "renew", "--days", "10")

    short = invoke(folder, "show")
    renewed = content(folder, "renew", "--days", "90")

    assert (short.exit_code, "aegis enrol renew" in short.stderr) == (1, True)
    assert renewed["days-left"] == 89
    shown = content(folder, "show")
    assert shown["warnings"] == []
    assert invoke(folder, "show").exit_code == 0
    assert shown["signing-key"] in invoke(folder, "show").stdout


def test_kit_that_was_changed_on_purpose_is_signed_again(folder: Path) -> None:
    content(folder, "hospital", "north")
    kit, key = folder / "kits" / "north", read_public_key(folder / "bundle.pub")
    (kit / ".env").write_text("AEGIS_DATA=/srv/images\n")
    with pytest.raises(VerificationError):
        verify_folder(kit, key)

    found = content(folder, "sign", str(kit))

    assert found["files"] == len(verify_folder(kit, key).digests)
    assert content(folder, "sign", str(kit / "nothing"), code=2)["status"] == "refused"


@pytest.mark.parametrize(("given", "address"), [("superlink", "superlink:8000"), ("127.0.0.1:9000", "127.0.0.1:9000")])
def test_registration_asks_the_named_superlink_and_tells_what_it_did(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, address: str
) -> None:
    done = Registration(registered=("north",), unregistered=("south",), unusable=(), strangers=())
    monkeypatch.setattr(command, "register_hospitals", lambda *_: done)
    home = ["--flower-home", str(tmp_path / "home")]

    found = content(folder, "register", "--superlink", given, *home)
    told = invoke(folder, "register", "--superlink", given, *home)

    assert (found["registered"], found["unregistered"], found["warnings"]) == (["north"], ["south"], [])
    assert f'address = "{address}"' in (tmp_path / "home" / "config.toml").read_text()
    assert "Let in from now on: north." in told.stdout


def test_registration_that_finds_something_exits_with_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Registration(registered=(), unregistered=(), unusable=("north",), strangers=("5",))
    monkeypatch.setattr(command, "register_hospitals", lambda *_: done)

    result = invoke(folder, "register", "--flower-home", str(tmp_path / "home"))

    assert result.exit_code == 1
    assert "aegis enrol rekey north" in result.stderr
    assert "Node 5" in result.stderr


def test_registration_that_fails_exits_with_one_and_its_reason(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RegistrationError("not reached")

    monkeypatch.setattr(command, "register_hospitals", fail)

    found = content(folder, "register", "--flower-home", str(tmp_path / "home"), code=1)

    assert found == {"status": "failed", "reason": "not reached"}
