"""Registration at a real SuperLink: enrolled keys are let in, all others are not, and repeating it changes nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.trust.command import enrol
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.enrolment import enrol_hospital, rekey_hospital, retire_key, revoke_hospital
from deploy.trust.hospital_key import make_key, private_file, public_line
from deploy.trust.registration import register_hospitals
from deploy.trust.superlink import RegistrationError, SuperLink
from tests.deploy.trust.authenticated_superlink import AuthenticatedSuperLink
from tests.deploy.trust.founded import found
from tests.e2e.waiting import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> ConsortiumFolder:
    return found(tmp_path_factory.mktemp("trust") / "consortium")


@pytest.fixture(scope="module")
def superlink(
    consortium: ConsortiumFolder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AuthenticatedSuperLink]:
    with AuthenticatedSuperLink(consortium, tmp_path_factory.mktemp("superlink")) as running:
        yield running


def ends(node: subprocess.Popen[bytes]) -> bool:
    wait_until(lambda: node.poll() is not None, "a SuperNode that ends")
    return node.returncode != 0


def register_by_command(consortium: ConsortiumFolder, superlink: AuthenticatedSuperLink, home: Path) -> dict[str, Any]:
    options = ["--superlink", superlink.address, "--flower-home", str(home), "--folder", str(consortium.path)]
    result = CliRunner().invoke(enrol, ["register", *options, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_enrolled_hospital_is_let_in_and_repeating_changes_nothing(
    consortium: ConsortiumFolder, superlink: AuthenticatedSuperLink, tmp_path: Path
) -> None:
    kit = enrol_hospital(consortium, "north").kit

    first = register_by_command(consortium, superlink, tmp_path)
    again = register_by_command(consortium, superlink, tmp_path)

    node_id = consortium.read().find("north").node_id
    assert (first["registered"], again["registered"], again["warnings"]) == (["north"], [], [])
    superlink.start_node(kit / "node.key", "north")
    wait_until(lambda: f"SuperNode ID: {node_id}" in superlink.log_of("north"), "north to be let in")


def test_key_that_is_not_enrolled_is_refused(
    consortium: ConsortiumFolder, superlink: AuthenticatedSuperLink, tmp_path: Path
) -> None:
    (tmp_path / "wrong.key").write_bytes(private_file(make_key()))

    node = superlink.start_node(tmp_path / "wrong.key", "wrong")

    assert ends(node)
    assert "Failed to activate SuperNode" in superlink.log_of("wrong")


def test_revoked_hospital_is_refused(consortium: ConsortiumFolder, superlink: AuthenticatedSuperLink) -> None:
    kit = enrol_hospital(consortium, "south").kit
    register_hospitals(consortium, superlink.administration())
    revoke_hospital(consortium, "south")

    done = register_hospitals(consortium, superlink.administration())

    assert done.unregistered == ("south",)
    assert ends(superlink.start_node(kit / "node.key", "south"))
    assert "Failed to activate SuperNode" in superlink.log_of("south")


def test_hospital_with_a_new_key_is_known_under_both_until_the_older_is_retired(
    consortium: ConsortiumFolder, superlink: AuthenticatedSuperLink
) -> None:
    link = superlink.administration()
    old = enrol_hospital(consortium, "east").hospital.public_key
    new = rekey_hospital(consortium, "east").hospital.public_key

    register_hospitals(consortium, link)
    both = {node.key for node in link.nodes() if node.living}
    retire_key(consortium, "east")
    register_hospitals(consortium, link)

    living = {node.key for node in link.nodes() if node.living}
    assert {old, new} <= both
    assert (old in living, new in living) == (False, True)


def test_node_that_nobody_enrolled_is_reported_and_left_alone(
    consortium: ConsortiumFolder, superlink: AuthenticatedSuperLink
) -> None:
    link = superlink.administration()
    stranger = public_line(make_key().public_key())
    link.register(stranger, "stranger")

    done = register_hospitals(consortium, link)

    (node,) = (node for node in link.nodes() if node.key == stranger)
    assert (done.strangers, node.living) == ((node.id,), True)
    link.unregister(node.id)


def test_refusal_of_the_superlink_is_told(superlink: AuthenticatedSuperLink) -> None:
    link = superlink.administration()

    with pytest.raises(RegistrationError, match="to unregister node 5, found"):
        link.unregister("5")


def test_server_with_a_certificate_of_another_authority_is_not_told_anything(
    superlink: AuthenticatedSuperLink, tmp_path: Path
) -> None:
    other = found(tmp_path / "other")
    link = SuperLink(superlink.address, authority=other.authority, home=tmp_path / "home")
    link.write_connection()

    with pytest.raises(RegistrationError, match="to tell its nodes, found"):
        link.nodes()
