"""The doctor reads what `aegis enrol` writes: a new consortium and a new kit raise no alarm."""

from __future__ import annotations

from pathlib import Path

from deploy.doctor.catalogue import HOSPITAL_CHECKS, SERVER_CHECKS
from deploy.doctor.checks import Result, Status, carry_out
from deploy.doctor.consortium_files import Roster
from deploy.doctor.hospital import Hospital
from deploy.doctor.server import Server
from deploy.trust.consortium import Consortium
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.enrolment import enrol_hospital, found_consortium, rekey_hospital, renew_certificate, revoke_hospital

KIT = ("kit-readable", "kit-key-matches", "kit-permissions", "ca-valid")
CONSORTIUM = (
    *("consortium-readable", "ca-valid", "server-certificate", "server-chain", "server-names", "server-dates"),
    *("internal-certificate", "secrets-permissions"),
)


def found(root: Path) -> ConsortiumFolder:
    folder = ConsortiumFolder(path=root / "consortium")
    consortium = Consortium(name="Four clinics", host="aegis.example", sans=("10.0.0.7",), created="2026-11-01")
    found_consortium(folder, consortium, days=90, internal_days=3650)
    return folder


def look_at_server(folder: ConsortiumFolder) -> dict[str, Result]:
    checks = [check for check in SERVER_CHECKS if check.id in CONSORTIUM]
    return {result.id: result for result in carry_out(checks, Server(folder=folder.path))}


def test_new_consortium_with_a_hospital_raises_no_alarm(tmp_path: Path) -> None:
    folder = found(tmp_path)
    enrol_hospital(folder, "north")
    renew_certificate(folder, days=90)

    results = look_at_server(folder)

    assert set(results) == set(CONSORTIUM)
    assert {name: result.found for name, result in results.items() if result.status is not Status.OK} == {}
    assert results["secrets-permissions"].found == "5 files, none open to others"


def test_new_kit_raises_no_alarm(tmp_path: Path) -> None:
    folder = found(tmp_path)
    enrol_hospital(folder, "north", out=tmp_path / "kit")
    checks = [check for check in HOSPITAL_CHECKS if check.id in KIT]
    site = Hospital(kit_folder=tmp_path / "kit", policy_path=tmp_path / "kit" / "site.toml")

    results = list(carry_out(checks, site))

    assert [(result.id, result.status) for result in results] == [(name, Status.OK) for name in KIT]


def test_keys_that_must_be_let_in_are_those_of_the_consortium(tmp_path: Path) -> None:
    folder = found(tmp_path)
    for name in ("north", "south"):
        enrol_hospital(folder, name, out=tmp_path / name)
    rekey_hospital(folder, "north", out=tmp_path / "again")
    revoke_hospital(folder, "south")

    roster = Roster.read(folder.toml)

    assert {member.id: set(member.keys) for member in roster.members} == {
        hospital.id: set(hospital.accepted_keys) for hospital in folder.read().hospitals
    }
    assert (roster.names, roster.internal_names) == (folder.read().server_names, folder.read().internal_sans)
