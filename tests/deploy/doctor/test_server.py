"""Every fault seeded into a server is found by the check it belongs to; a healthy server is left in peace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.doctor.checks import Status
from tests.deploy.doctor.made_up_certificates import issue
from tests.deploy.doctor.seeded_server_faults import SERVER_FAULTS
from tests.deploy.doctor.server_site import ServerSite, healthy_server
from tests.deploy.doctor.site import GIB, failures


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ServerSite]:
    with healthy_server(tmp_path) as made:
        yield made


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_healthy_server_raises_no_alarm_and_nothing_is_changed(site: ServerSite) -> None:
    site.server()
    before = contents(site.root)

    results = site.examine()

    assert {name: result.found for name, result in results.items() if result.status is not Status.OK} == {}
    assert len(results) >= 12
    assert contents(site.root) == before


@pytest.mark.parametrize("name", SERVER_FAULTS)
def test_seeded_fault_is_found_by_its_check_and_no_other(site: ServerSite, name: str) -> None:
    SERVER_FAULTS[name].seed(site)

    results = site.examine()

    assert failures(results) == SERVER_FAULTS[name].expected
    assert all(results[found].mend for found in SERVER_FAULTS[name].expected)
    assert not any("itself broke" in result.found for result in results.values())


def test_what_is_not_named_is_not_looked_at(site: ServerSite) -> None:
    results = site.examine(database=None, runs=None, edge=None)

    skipped = {name: result.found for name, result in results.items() if result.status is Status.SKIPPED}
    assert skipped == {
        "database-durable": "not looked at: no --database",
        "database-integrity": "not looked at: no --database",
        "database-size": "not looked at: no --database",
        "hospitals-registered": "not looked at: no --database",
        "runs-durable": "not looked at: no --runs",
        "edge-tls": "not looked at: no --edge",
        "edge-health": "not looked at: no --edge",
        "edge-blocks": "not looked at: no --edge",
    }
    assert failures(results) == set()


def test_own_superlink_at_its_port_is_no_stranger(site: ServerSite) -> None:
    site.listen_as_superlink(issue(site.authority, "superlink", "127.0.0.1"))

    assert site.examine()["ports"].status is Status.OK


def test_previous_key_of_a_hospital_must_be_let_in_too(site: ServerSite) -> None:
    north, south, _ = site.consortium["hospitals"]
    north["previous-key"] = south["public-key"]
    site.consortium["hospitals"] = [north]

    assert site.examine()["hospitals-registered"].status is Status.OK


@pytest.mark.parametrize(
    ("name", "free"), [("consortium", True), ("superlink", True), ("runs", True), ("elsewhere", False)]
)
def test_little_room_in_any_folder_is_a_warning(site: ServerSite, name: str, free: bool) -> None:
    site.change_machine(free_bytes=lambda path: 3 * GIB if path.name == name else 50 * GIB)

    assert (site.examine()["disk"].status is Status.WARNING) == free


def test_consortium_without_hospitals_is_a_warning(site: ServerSite) -> None:
    site.consortium["hospitals"] = []

    results = site.examine(database=None)

    assert [name for name, result in results.items() if result.status is Status.WARNING] == ["consortium-readable"]


def test_large_database_is_a_warning(site: ServerSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.doctor.service._LARGE_DATABASE", 1000)

    assert site.examine()["database-size"].status is Status.WARNING
