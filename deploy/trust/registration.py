"""Bringing a SuperLink in line with `consortium.toml`: who is enrolled is let in, who was withdrawn is not.

May be repeated at any time; what is right already is left alone. It needs no private key of the consortium.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from deploy.trust.consortium import Consortium, Hospital
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.superlink import Node


class Registry(Protocol):
    """What is asked of a SuperLink."""

    def nodes(self) -> list[Node]:
        """Return every node that was ever registered."""

    def register(self, public_key: str, name: str) -> None:
        """Let the node with this key in from now on."""

    def unregister(self, node_id: str) -> None:
        """Let the node in no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """What was done, and what a person must look at.

    Attributes:
        registered: ids of hospitals whose key is let in from now on.
        unregistered: ids of hospitals with a key that is let in no more.
        unusable: ids of hospitals with a key that the SuperLink has once withdrawn and so never takes again.
        strangers: ids of nodes that are let in and belong to no hospital of the consortium.
    """

    registered: tuple[str, ...]
    unregistered: tuple[str, ...]
    unusable: tuple[str, ...]
    strangers: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return asdict(self)

    @property
    def warnings(self) -> list[str]:
        """What a person must look at, a sentence each."""
        return [
            *(
                f"{hospital}: Flower never takes a key again that was withdrawn from it: aegis enrol rekey {hospital}"
                for hospital in self.unusable
            ),
            *(
                f"Node {node} is let in, and nobody in consortium.toml has its key: flwr supernode unregister {node}"
                for node in self.strangers
            ),
        ]


def register_hospitals(folder: ConsortiumFolder, registry: Registry) -> Registration:
    """Withdraw what must not be let in, register what must, and write down what the SuperLink calls each node.

    Raises:
        ConfigurationError: the consortium cannot be read, or another command is changing it.
        RegistrationError: the SuperLink was not reached, or refused; what was done until then stays, and stands in
            the SuperLink for the next attempt.
    """
    with folder.alone():
        consortium = folder.read()
        before = registry.nodes()
        living, withdrawn = _by_key(before, living=True), _by_key(before, living=False)
        accepted = {key: hospital.id for hospital in consortium.hospitals for key in hospital.accepted_keys}
        leaving = [(key, node) for key, node in living.items() if consortium.owner_of(key) and key not in accepted]
        for _, node in leaving:
            registry.unregister(node)
        missing = [(key, name) for key, name in accepted.items() if key not in living and key not in withdrawn]
        for key, name in missing:
            registry.register(key, name)
        after = registry.nodes() if leaving or missing else before
        written = _with_node_ids(consortium, _by_key(after, living=True))
        if written != consortium:
            folder.write(written)
    return Registration(
        registered=_names(name for _, name in missing),
        unregistered=_names(consortium.owner_of(key) for key, _ in leaving),
        unusable=_names(name for key, name in accepted.items() if key in withdrawn and key not in living),
        strangers=tuple(node.id for node in after if node.living and not consortium.owner_of(node.key)),
    )


def _by_key(nodes: Iterable[Node], *, living: bool) -> dict[str, str]:
    return {node.key: node.id for node in nodes if node.living is living and node.key}


def _names(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))


def _with_node_ids(consortium: Consortium, living: dict[str, str]) -> Consortium:
    hospitals = tuple(_with_node_id(hospital, living) for hospital in consortium.hospitals)
    return consortium.model_copy(update={"hospitals": hospitals})


def _with_node_id(hospital: Hospital, living: dict[str, str]) -> Hospital:
    """Return the hospital with what its keys are called now; of a key that is let in no more, the last name stays."""
    return hospital.model_copy(
        update={
            "node_id": living.get(hospital.public_key, hospital.node_id),
            "previous_node_id": living.get(hospital.previous_key, hospital.previous_node_id),
        }
    )
