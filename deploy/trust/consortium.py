"""Who belongs to a consortium: what stands in `consortium.toml`; names and public keys, no secret.

Read next: `consortium_folder`, where it lies; `enrolment`, how hospitals come and go; `registration`, how the
SuperLink learns of it.
"""

from __future__ import annotations

from datetime import date
from typing import Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from deploy.trust.authority import is_host
from deploy.trust.hospital_key import canonical_line
from federation.config.table import Table
from federation.errors import ConfigurationError
from federation.identifiers import Identifier

INTERNAL_SANS = ("superlink", "localhost", "127.0.0.1", "::1")
_LARGEST_PORT = 65535
_LONGEST_NAME = 64


class RetiredKey(Table):
    """A key that a hospital once had; Flower never takes a key again that was withdrawn from it.

    Attributes:
        public_key: one OpenSSH line without a comment.
        node_id: what the SuperLink called it; empty when it never got there.
    """

    public_key: str
    node_id: str = ""


class Hospital(Table):
    """One hospital.

    Attributes:
        id: how everybody in the consortium knows it.
        public_key: of its node, one OpenSSH line without a comment.
        enrolled: the day it was, ISO 8601.
        revoked: the day it was, ISO 8601; empty for a hospital that takes part.
        node_id: what the SuperLink calls its node; empty until it is registered.
        previous_key: the key before this one, which is accepted too until it is retired; empty for none.
        previous_node_id: what the SuperLink calls the node with that key.
        retired: keys that are not accepted any more.
    """

    id: Identifier
    public_key: str
    enrolled: str
    revoked: str = ""
    node_id: str = ""
    previous_key: str = ""
    previous_node_id: str = ""
    retired: tuple[RetiredKey, ...] = ()

    @field_validator("public_key", "previous_key")
    @classmethod
    def _be_a_key(cls, line: str, field: ValidationInfo) -> str:
        try:
            plain = canonical_line(line) if line or field.field_name == "public_key" else ""
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        if plain != line:
            raise ValueError("Expected the key without a comment.")
        return line

    @field_validator("enrolled", "revoked")
    @classmethod
    def _be_a_day(cls, day: str) -> str:
        if day:
            date.fromisoformat(day)
        return day

    @field_validator("retired", mode="before")
    @classmethod
    def _be_a_tuple(cls, keys: object) -> object:
        return tuple(keys) if isinstance(keys, list) else keys

    @property
    def accepted_keys(self) -> tuple[str, ...]:
        """Keys with which the SuperLink must let this hospital in."""
        return () if self.revoked else tuple(key for key in (self.public_key, self.previous_key) if key)

    @property
    def all_keys(self) -> tuple[str, ...]:
        """Every key this hospital ever had."""
        current = tuple(key for key in (self.public_key, self.previous_key) if key)
        return (*current, *(key.public_key for key in self.retired))


class Consortium(Table):
    """Everything in `consortium.toml`.

    Attributes:
        format: of this file.
        name: of the consortium.
        host: the server's name or address, as hospitals reach it.
        port: likewise.
        sans: further names and addresses in the server's certificate.
        internal_sans: names and addresses in the certificate of Flower's SuperLink, behind the proxy.
        created: the day, ISO 8601.
        hospitals: all that were ever enrolled, in that order.
    """

    format: int = Field(1, ge=1, le=1)
    name: str
    host: str
    port: int = Field(8443, ge=1, le=_LARGEST_PORT)
    sans: tuple[str, ...] = ()
    internal_sans: tuple[str, ...] = INTERNAL_SANS
    created: str
    hospitals: tuple[Hospital, ...] = ()

    @field_validator("sans", "internal_sans", "hospitals", mode="before")
    @classmethod
    def _be_a_tuple(cls, items: object) -> object:
        return tuple(items) if isinstance(items, list) else items

    @field_validator("name")
    @classmethod
    def _be_a_title(cls, name: str) -> str:
        if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise ValueError(f"Expected 1 to {_LONGEST_NAME} printable characters, found {name!r}.")
        return name

    @field_validator("host")
    @classmethod
    def _be_a_host(cls, host: str) -> str:
        if not is_host(host):
            raise ValueError(f"Expected the name of a host, or its IP address, without port, found {host!r}.")
        return host

    @field_validator("sans", "internal_sans")
    @classmethod
    def _be_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not is_host(host):
                raise ValueError(f"Expected names of hosts, or IP addresses, found {host!r}.")
        return hosts

    @model_validator(mode="after")
    def _tell_hospitals_apart(self) -> Self:
        ids = [hospital.id for hospital in self.hospitals]
        keys = [key for hospital in self.hospitals for key in hospital.all_keys]
        if len(set(ids)) < len(ids) or len(set(keys)) < len(keys):
            raise ValueError("Expected every id and every key once, found one twice.")
        return self

    @property
    def server_names(self) -> tuple[str, ...]:
        """What the server's certificate must carry, each once."""
        return tuple(dict.fromkeys((self.host, *self.sans)))

    def find(self, hospital_id: str) -> Hospital:
        """Return the hospital of that id.

        Raises:
            ConfigurationError: there is none.
        """
        for hospital in self.hospitals:
            if hospital.id == hospital_id:
                return hospital
        known = ", ".join(hospital.id for hospital in self.hospitals) or "nobody yet"
        raise ConfigurationError(f"Expected the id of an enrolled hospital, found {hospital_id!r}; enrolled: {known}.")

    def owner_of(self, public_key: str) -> str:
        """Return the id of the hospital that has, or once had, this key; empty for nobody."""
        return next((hospital.id for hospital in self.hospitals if public_key in hospital.all_keys), "")

    def having(self, changed: Hospital) -> Consortium:
        """Return the consortium with `changed` in the place of the hospital of that id, or at the end."""
        ids = [hospital.id for hospital in self.hospitals]
        kept = tuple(changed if hospital.id == changed.id else hospital for hospital in self.hospitals)
        return self.model_copy(update={"hospitals": kept if changed.id in ids else (*kept, changed)})
