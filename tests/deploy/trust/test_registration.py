"""Bringing a SuperLink in line with the consortium, against one that remembers as Flower's does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.enrolment import enrol_hospital, rekey_hospital, retire_key, revoke_hospital
from deploy.trust.hospital_key import make_key, public_line
from deploy.trust.registration import register_hospitals
from deploy.trust.superlink import Node, RegistrationError
from federation.errors import ConfigurationError
from tests.deploy.trust.founded import found


class RememberedNodes:
    """A SuperLink that never takes a key twice, and can be told to fail."""

    def __init__(self) -> None:
        self.known: list[Node] = []
        self.calls: list[tuple[str, str]] = []
        self.fails_at = ""

    def nodes(self) -> list[Node]:
        return list(self.known)

    def register(self, public_key: str, name: str) -> None:
        self._note("register", name)
        if any(node.key == public_key for node in self.known):
            raise RegistrationError("Public key already in use.")
        self.known.append(Node(id=str(2**63 + len(self.known)), key=public_key, living=True))

    def unregister(self, node_id: str) -> None:
        self._note("unregister", node_id)
        self.known = [replace(node, living=node.living and node.id != node_id) for node in self.known]

    def living(self) -> set[str]:
        return {node.key for node in self.known if node.living}

    def _note(self, verb: str, what: str) -> None:
        if self.fails_at == verb:
            raise RegistrationError("not reached")
        self.calls.append((verb, what))


@pytest.fixture
def folder(tmp_path: Path) -> ConsortiumFolder:
    return found(tmp_path / "consortium")


@pytest.fixture
def nodes() -> RememberedNodes:
    return RememberedNodes()


def test_enrolled_hospitals_are_registered_and_their_nodes_written_down(
    folder: ConsortiumFolder, nodes: RememberedNodes
) -> None:
    keys = {name: enrol_hospital(folder, name).hospital.public_key for name in ("north", "south")}

    done = register_hospitals(folder, nodes)

    assert done.registered == ("north", "south")
    assert nodes.living() == set(keys.values())
    written = {hospital.id: hospital.node_id for hospital in folder.read().hospitals}
    assert written == {name: node.id for name, node in zip(keys, nodes.known, strict=True)}


def test_repeating_changes_nothing(folder: ConsortiumFolder, nodes: RememberedNodes) -> None:
    enrol_hospital(folder, "north")
    register_hospitals(folder, nodes)
    calls, written = list(nodes.calls), folder.toml.read_bytes()

    done = register_hospitals(folder, nodes)

    assert (done.registered, done.unregistered, done.warnings) == ((), (), [])
    assert (nodes.calls, folder.toml.read_bytes()) == (calls, written)


def test_nothing_is_written_when_nothing_has_changed(
    folder: ConsortiumFolder, nodes: RememberedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrol_hospital(folder, "north")
    register_hospitals(folder, nodes)
    written: list[object] = []
    monkeypatch.setattr(ConsortiumFolder, "write", lambda _, consortium: written.append(consortium))

    register_hospitals(folder, nodes)

    assert written == []


def test_registration_that_broke_off_is_taken_up_where_it_stands(
    folder: ConsortiumFolder, nodes: RememberedNodes
) -> None:
    north = enrol_hospital(folder, "north").hospital
    nodes.register(north.public_key, "north")
    enrol_hospital(folder, "south")

    done = register_hospitals(folder, nodes)

    assert done.registered == ("south",)
    assert folder.read().find("north").node_id == nodes.known[0].id


def test_hospital_is_registered_anew_at_a_superlink_that_forgot_it(
    folder: ConsortiumFolder, nodes: RememberedNodes
) -> None:
    enrol_hospital(folder, "north")
    register_hospitals(folder, nodes)
    other = RememberedNodes()
    other.register(public_line(make_key().public_key()), "taking the first id")

    done = register_hospitals(folder, other)

    assert done.registered == ("north",)
    assert folder.read().find("north").node_id == other.known[1].id


def test_every_key_of_a_revoked_hospital_is_withdrawn_and_no_other(
    folder: ConsortiumFolder, nodes: RememberedNodes
) -> None:
    south = enrol_hospital(folder, "south").hospital.public_key
    enrol_hospital(folder, "north")
    rekey_hospital(folder, "north")
    register_hospitals(folder, nodes)
    revoke_hospital(folder, "north")

    done = register_hospitals(folder, nodes)

    assert (done.registered, done.unregistered) == ((), ("north",))
    assert nodes.living() == {south}
    assert register_hospitals(folder, nodes).unregistered == ()


def test_retired_key_is_withdrawn_and_the_new_one_stays(folder: ConsortiumFolder, nodes: RememberedNodes) -> None:
    old = enrol_hospital(folder, "north").hospital.public_key
    register_hospitals(folder, nodes)
    new = rekey_hospital(folder, "north").hospital.public_key
    register_hospitals(folder, nodes)
    both = folder.read().find("north")
    retire_key(folder, "north")

    done = register_hospitals(folder, nodes)

    assert (both.previous_node_id, both.node_id) == (nodes.known[0].id, nodes.known[1].id)
    assert done.unregistered == ("north",)
    assert (old in nodes.living(), new in nodes.living()) == (False, True)


def test_withdrawing_comes_before_registering(folder: ConsortiumFolder, nodes: RememberedNodes) -> None:
    enrol_hospital(folder, "north")
    register_hospitals(folder, nodes)
    revoke_hospital(folder, "north")
    enrol_hospital(folder, "south")
    nodes.fails_at = "register"

    with pytest.raises(RegistrationError, match="not reached"):
        register_hospitals(folder, nodes)

    assert nodes.living() == set()


def test_key_that_somebody_withdrew_by_hand_is_told_with_what_helps(
    folder: ConsortiumFolder, nodes: RememberedNodes
) -> None:
    enrol_hospital(folder, "north")
    register_hospitals(folder, nodes)
    nodes.unregister(nodes.known[0].id)

    done = register_hospitals(folder, nodes)

    assert (done.registered, done.unusable) == ((), ("north",))
    assert "aegis enrol rekey north" in done.warnings[0]


def test_stranger_is_told_and_left_alone(folder: ConsortiumFolder, nodes: RememberedNodes) -> None:
    nodes.known = [
        Node(id="5", key=public_line(make_key().public_key()), living=True),
        Node(id="6", key="", living=True),
        Node(id="7", key=public_line(make_key().public_key()), living=False),
    ]

    done = register_hospitals(folder, nodes)

    assert done.strangers == ("5", "6")
    assert "flwr supernode unregister 5" in done.warnings[0]
    assert nodes.calls == []


def test_nobody_changes_the_consortium_meanwhile(folder: ConsortiumFolder, nodes: RememberedNodes) -> None:
    enrol_hospital(folder, "north")

    with folder.alone(), pytest.raises(ConfigurationError, match="another command at work"):
        register_hospitals(folder, nodes)

    assert nodes.calls == []


def test_registration_needs_no_private_key_of_the_consortium(folder: ConsortiumFolder, nodes: RememberedNodes) -> None:
    enrol_hospital(folder, "north")
    for path in (*folder.path.rglob("*.key"), folder.executor_secret):
        path.unlink()

    assert register_hospitals(folder, nodes).registered == ("north",)
