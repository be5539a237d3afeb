"""How a consortium is founded, and how hospitals come, change their key and go.

A hospital that is revoked here is out once the SuperLink has been told so, by `registration`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from deploy.trust.authority import Pair, issue, make_authority
from deploy.trust.certificate_files import PRIVATE, PUBLIC, install_server_pair, read_certificate, read_pair, write_pair
from deploy.trust.consortium import Consortium, Hospital, RetiredKey
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.hospital_key import make_key, public_line
from deploy.trust.kit import Kit
from deploy.trust.kits import KitContents, next_place, write_kit
from deploy.trust.signing import private_pem, public_pem, read_signing_key
from federation.durable import sync_folder, write_durably
from federation.errors import ConfigurationError
from federation.identifiers import IDENTIFIER_RULE, is_identifier

_SECRET_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Enrolled:
    """What a coordinator hands over.

    Attributes:
        hospital: as it is recorded now.
        kit: folder of its kit.
        has_private_key: whether the kit holds one, and so must be handed over in confidence.
    """

    hospital: Hospital
    kit: Path
    has_private_key: bool


def found_consortium(folder: ConsortiumFolder, consortium: Consortium, *, days: int, internal_days: int) -> None:
    """Make the folder of a new consortium: its authority, the certificates, the secrets, and `consortium.toml` last.

    Args:
        folder: it must be empty or missing.
        consortium: without hospitals.
        days: how long the server's certificate is valid.
        internal_days: how long that of the SuperLink is.

    Raises:
        ConfigurationError: something is in the folder.
        OSError: the disk refused.
    """
    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder.alone():
        if present := sorted(path.name for path in folder.path.iterdir()):
            raise ConfigurationError(
                f"Expected {folder.path} to be empty, found {present[0]!r}: no consortium is ever overwritten. "
                f"Without {folder.toml.name} it is left from an attempt that broke off, and can be deleted."
            )
        folder.path.chmod(0o700)
        authority = make_authority(consortium.name)
        write_pair(folder.authority, authority)
        write_pair(folder.internal, issue(authority, consortium.internal_sans, days=internal_days))
        install_server_pair(folder.server, issue(authority, consortium.server_names, days=days))
        key = Ed25519PrivateKey.generate()
        write_durably(folder.signing_key, private_pem(key), mode=PRIVATE)
        write_durably(folder.signing_key.with_suffix(".pub"), public_pem(key.public_key()), mode=PUBLIC)
        write_durably(folder.executor_secret, secrets.token_hex(_SECRET_BYTES).encode(), mode=PRIVATE)
        folder.write(consortium)
    sync_folder(folder.path.parent)


def enrol_hospital(
    folder: ConsortiumFolder, hospital_id: str, *, public_key: str = "", out: Path | None = None, compose: str = ""
) -> Enrolled:
    """Record a new hospital and write its kit.

    Args:
        folder: of the consortium.
        hospital_id: new in the consortium.
        public_key: the hospital's own, one line; empty: a key is made and lies in the kit.
        out: where the kit goes; None: below the consortium's folder.
        compose: text of the kit's compose file.

    Raises:
        ConfigurationError: the id or the key is taken, or there is something where the kit goes.
    """
    with folder.alone():
        consortium = folder.read()
        if not is_identifier(hospital_id):
            raise ConfigurationError(f"Expected {IDENTIFIER_RULE}, found {hospital_id!r}.")
        if any(hospital.id == hospital_id for hospital in consortium.hospitals):
            raise ConfigurationError(
                f"Expected a new id, found {hospital_id!r}, which is enrolled: aegis enrol rekey gives it a new key."
            )
        target = out or folder.kits / hospital_id
        day = today()
        return _hand_out(
            folder,
            consortium,
            lambda line: Hospital(id=hospital_id, public_key=line, enrolled=day),
            _Request(hospital_id=hospital_id, public_key=public_key, target=target, compose=compose),
        )


def rekey_hospital(
    folder: ConsortiumFolder,
    hospital_id: str,
    *,
    public_key: str = "",
    out: Path | None = None,
    readmit: bool = False,
    compose: str = "",
) -> Enrolled:
    """Give a hospital a new key and a new kit; the old key is accepted beside it until it is retired.

    Args:
        folder: of the consortium.
        hospital_id: of an enrolled hospital.
        public_key: the hospital's own new one, one line; empty: a key is made and lies in the kit.
        out: where the kit goes; None: below the consortium's folder.
        readmit: take a revoked hospital in again, under the new key alone.
        compose: text of the kit's compose file.

    Raises:
        ConfigurationError: there is no such hospital, it is revoked, the key before is not retired yet, or the new one
            is taken.
    """
    with folder.alone():
        consortium = folder.read()
        hospital = consortium.find(hospital_id)
        if hospital.revoked and not readmit:
            raise ConfigurationError(
                f"Expected a hospital that takes part, found that {hospital_id!r} was revoked on {hospital.revoked}: "
                "--readmit takes it in again."
            )
        if hospital.previous_key and not hospital.revoked:
            raise ConfigurationError(
                f"Expected one key of {hospital_id!r}, found two: aegis enrol retire ends the older one first."
            )
        changed = _without_keys(hospital) if hospital.revoked else _with_key_as_previous(hospital)
        target = out or next_place(folder.kits, hospital_id)
        return _hand_out(
            folder,
            consortium,
            lambda line: changed.model_copy(update={"public_key": line, "node_id": ""}),
            _Request(hospital_id=hospital_id, public_key=public_key, target=target, compose=compose),
        )


def revoke_hospital(folder: ConsortiumFolder, hospital_id: str) -> Hospital:
    """Record that a hospital's keys are not accepted any more; return it.

    Raises:
        ConfigurationError: there is no such hospital, or it is revoked already.
    """
    with folder.alone():
        consortium = folder.read()
        hospital = consortium.find(hospital_id)
        if hospital.revoked:
            raise ConfigurationError(
                f"Expected a hospital that takes part, found that {hospital_id!r} was revoked on {hospital.revoked}."
            )
        changed = hospital.model_copy(update={"revoked": today()})
        folder.write(consortium.having(changed))
        return changed


def retire_key(folder: ConsortiumFolder, hospital_id: str) -> Hospital:
    """Record that the key before a hospital's present one is not accepted any more; return the hospital.

    Raises:
        ConfigurationError: there is no such hospital, or it has one key only.
    """
    with folder.alone():
        consortium = folder.read()
        hospital = consortium.find(hospital_id)
        if not hospital.previous_key:
            raise ConfigurationError(
                f"Expected an older key of {hospital_id!r}, found none: there is nothing to retire."
            )
        old = RetiredKey(public_key=hospital.previous_key, node_id=hospital.previous_node_id)
        update = {"previous_key": "", "previous_node_id": "", "retired": (*hospital.retired, old)}
        changed = hospital.model_copy(update=update)
        folder.write(consortium.having(changed))
        return changed


def renew_certificate(folder: ConsortiumFolder, *, days: int) -> Pair:
    """Give the server a new key and certificate for the same names, from the same authority; return them.

    Raises:
        ConfigurationError: the authority cannot be read, or has ended.
    """
    with folder.alone():
        consortium = folder.read()
        pair = issue(read_pair(folder.authority), consortium.server_names, days=days)
        install_server_pair(folder.server, pair)
        folder.show()
        return pair


def today() -> str:
    """Return the day in ISO 8601, in UTC."""
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    hospital_id: str
    public_key: str
    target: Path
    compose: str


def _hand_out(
    folder: ConsortiumFolder, consortium: Consortium, record: Callable[[str], Hospital], request: _Request
) -> Enrolled:
    """Write the kit, then what `record` makes of its key: a kit that nobody has recorded opens nothing."""
    private_key = None if request.public_key else make_key()
    line = request.public_key if private_key is None else public_line(private_key.public_key())
    if owner := consortium.owner_of(line):
        raise ConfigurationError(f"Expected a key that nobody has used, found a key of {owner!r}: make a new one.")
    kit = Kit(
        consortium=consortium.name,
        hospital_id=request.hospital_id,
        host=consortium.host,
        port=consortium.port,
        public_key=line,
    )
    authority = read_certificate(folder.authority).public_bytes(Encoding.PEM)
    contents = KitContents(kit=kit, authority=authority, private_key=private_key, compose=request.compose)
    hospital = record(line)
    write_kit(request.target, contents, read_signing_key(folder.signing_key))
    folder.write(consortium.having(hospital))
    return Enrolled(hospital=hospital, kit=request.target, has_private_key=private_key is not None)


def _with_key_as_previous(hospital: Hospital) -> Hospital:
    return hospital.model_copy(update={"previous_key": hospital.public_key, "previous_node_id": hospital.node_id})


def _without_keys(hospital: Hospital) -> Hospital:
    """Return the hospital as one that takes part again, with all its keys retired."""
    pairs = ((hospital.public_key, hospital.node_id), (hospital.previous_key, hospital.previous_node_id))
    old = tuple(RetiredKey(public_key=key, node_id=node_id) for key, node_id in pairs if key)
    update = {"revoked": "", "previous_key": "", "previous_node_id": "", "retired": (*hospital.retired, *old)}
    return hospital.model_copy(update=update)
