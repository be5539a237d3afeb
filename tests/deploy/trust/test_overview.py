"""What a coordinator is shown, and when something needs a hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from deploy.trust.certificate_files import read_certificate
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.enrolment import enrol_hospital, rekey_hospital, revoke_hospital
from deploy.trust.hospital_key import fingerprint
from deploy.trust.overview import look_at, tables
from tests.deploy.trust.founded import found


@pytest.fixture
def folder(tmp_path: Path) -> ConsortiumFolder:
    return found(tmp_path / "consortium", days=90)


@pytest.mark.parametrize(("days", "warned"), [(30.5, False), (29.5, True)])
def test_server_certificate_is_warned_of_below_thirty_days(folder: ConsortiumFolder, days: float, warned: bool) -> None:
    end = read_certificate(folder.server / "current" / "server.crt").not_valid_after_utc

    warnings = look_at(folder, now=end - timedelta(days=days)).warnings

    assert warnings == (["The certificate 'server' ends in 29 days: aegis enrol renew."] if warned else [])


def test_authority_is_warned_of_half_a_year_before_its_end(folder: ConsortiumFolder) -> None:
    end = read_certificate(folder.authority).not_valid_after_utc

    warned = look_at(folder, now=end - timedelta(days=179)).certificates[0].warning

    assert "'ca' ends in 179 days: found a new consortium" in warned
    assert look_at(folder, now=end - timedelta(days=181)).certificates[0].warning == ""


def test_certificate_that_has_ended_is_said_to_have_ended(folder: ConsortiumFolder) -> None:
    end = read_certificate(folder.server / "current" / "server.crt").not_valid_after_utc

    (warning,) = look_at(folder, now=end + timedelta(seconds=1)).warnings

    assert "has ended on" in warning


def test_state_and_keys_of_every_hospital_are_told(folder: ConsortiumFolder) -> None:
    north = enrol_hospital(folder, "north").hospital
    folder.write(folder.read().having(north.model_copy(update={"node_id": "7"})))
    old = enrol_hospital(folder, "south").hospital.public_key
    south = rekey_hospital(folder, "south").hospital
    enrol_hospital(folder, "east")
    revoked = revoke_hospital(folder, "east").revoked

    found = look_at(folder).as_dict()["hospitals"]

    assert [hospital["state"] for hospital in found] == [
        "registered",
        "not registered yet, older key accepted",
        f"revoked {revoked}",
    ]
    assert found[0]["fingerprint"] == fingerprint(north.public_key)
    assert (found[1]["fingerprint"], found[1]["previous-fingerprint"]) == (
        fingerprint(south.public_key),
        fingerprint(old),
    )


def test_tables_fit_a_terminal_of_eighty_columns(folder: ConsortiumFolder) -> None:
    enrol_hospital(folder, "x" * 64)
    console = Console(width=80, record=True, quiet=True)

    with console.capture() as captured:
        for table in tables(look_at(folder, now=datetime(2026, 12, 1, tzinfo=UTC))):
            console.print(table)

    assert max(map(len, captured.get().splitlines()), default=0) <= 80
