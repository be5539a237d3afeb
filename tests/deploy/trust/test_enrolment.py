"""How a consortium is founded, and how hospitals come, change their key and go."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from deploy.trust import enrolment
from deploy.trust.certificate_files import read_certificate, read_pair
from deploy.trust.consortium import Consortium
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.enrolment import (
    enrol_hospital,
    found_consortium,
    rekey_hospital,
    renew_certificate,
    retire_key,
    revoke_hospital,
)
from deploy.trust.hospital_key import make_key, public_line
from deploy.trust.kit import Kit
from deploy.trust.signing import read_public_key, read_signing_key
from federation.errors import ConfigurationError
from tests.deploy.trust.founded import found


@pytest.fixture
def folder(tmp_path: Path) -> ConsortiumFolder:
    return found(tmp_path / "consortium")


def names_in(certificate: x509.Certificate) -> list[str]:
    carried = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in carried]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_founded_consortium_holds_everything_and_its_secrets_are_for_its_owner_alone(folder: ConsortiumFolder) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.rglob("*") if path.is_file()}

    assert modes == {
        "ca.crt": 0o644,
        "ca.key": 0o600,
        "superlink.crt": 0o644,
        "superlink.key": 0o600,
        "server.crt": 0o644,
        "server.key": 0o600,
        "bundle.key": 0o600,
        "bundle.pub": 0o644,
        "superexec.secret": 0o600,
        "consortium.toml": 0o644,
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.path, folder.server)} == {0o700}
    assert len(bytes.fromhex(folder.executor_secret.read_text())) == 32
    assert read_signing_key(folder.signing_key).public_key() == read_public_key(folder.path / "bundle.pub")


def test_founded_certificates_carry_the_names_they_are_reached_under(tmp_path: Path) -> None:
    folder = ConsortiumFolder(path=tmp_path / "consortium")
    consortium = Consortium(name="N", host="10.1.2.3", sans=("fl.example.org",), created="2026-11-30")

    found_consortium(folder, consortium, days=90, internal_days=400)

    server, internal = read_pair(folder.server / "current" / "server.crt"), read_pair(folder.internal)
    assert names_in(server.certificate) == ["10.1.2.3", "fl.example.org"]
    assert names_in(internal.certificate) == ["superlink", "localhost", "127.0.0.1", "::1"]
    lasting = [
        pair.certificate.not_valid_after_utc - pair.certificate.not_valid_before_utc for pair in (server, internal)
    ]
    assert [time.days for time in lasting] == [90, 400]
    read_certificate(folder.internal).verify_directly_issued_by(read_certificate(folder.authority))


def test_folder_with_anything_in_it_is_never_overwritten(folder: ConsortiumFolder) -> None:
    before = contents(folder.path)

    with pytest.raises(ConfigurationError, match=r"to be empty, found 'bundle.key'"):
        found(folder.path)

    assert contents(folder.path) == before


def test_consortium_that_was_founded_by_half_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(ConsortiumFolder, "write", break_off)
    with pytest.raises(OSError, match="no space left"):
        found(tmp_path / "consortium")

    with pytest.raises(ConfigurationError, match="aegis enrol init makes one"):
        enrol_hospital(ConsortiumFolder(path=tmp_path / "consortium"), "north")


def test_folder_that_others_may_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "consortium").mkdir(mode=0o755)

    folder = found(tmp_path / "consortium")

    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_hospital_gets_a_kit_whose_key_is_the_recorded_one(folder: ConsortiumFolder) -> None:
    done = enrol_hospital(folder, "north", compose="services: {}\n")

    kit = Kit.read(done.kit)
    private = serialization.load_ssh_private_key((done.kit / kit.key).read_bytes(), None)
    recorded = folder.read().find("north")
    assert done.kit == folder.kits / "north"
    assert done.has_private_key
    assert public_line(private.public_key()) == kit.public_key == recorded.public_key  # type: ignore[arg-type]
    assert (recorded.revoked, recorded.node_id) == ("", "")
    assert (kit.consortium, kit.server) == ("Heart Network", "fl.example.org:8443")
    assert (done.kit / kit.ca).read_bytes() == folder.authority.read_bytes()


def test_hospital_that_brings_its_key_gets_a_kit_without_a_private_one(folder: ConsortiumFolder) -> None:
    line = public_line(make_key().public_key())

    done = enrol_hospital(folder, "north", public_key=line)

    assert not done.has_private_key
    assert Kit.read(done.kit).public_key == folder.read().find("north").public_key == line
    assert not any(b"PRIVATE KEY" in content for content in contents(done.kit).values())


def test_id_is_given_once(folder: ConsortiumFolder, tmp_path: Path) -> None:
    enrol_hospital(folder, "north")
    before = folder.toml.read_bytes()

    with pytest.raises(ConfigurationError, match="Expected a new id, found 'north'"):
        enrol_hospital(folder, "north", out=tmp_path / "elsewhere")

    assert folder.toml.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["", "a/b", "../north", "a b"])
def test_id_that_is_no_identifier_is_refused_before_anything_is_written(folder: ConsortiumFolder, name: str) -> None:
    before = contents(folder.path)

    with pytest.raises(ConfigurationError, match="letters, digits"):
        enrol_hospital(folder, name)

    assert contents(folder.path) == before


def test_key_of_another_hospital_is_refused_also_when_it_is_retired(folder: ConsortiumFolder) -> None:
    old = enrol_hospital(folder, "north").hospital.public_key
    rekey_hospital(folder, "north")
    retire_key(folder, "north")

    with pytest.raises(ConfigurationError, match="found a key of 'north'"):
        enrol_hospital(folder, "south", public_key=old)

    assert [hospital.id for hospital in folder.read().hospitals] == ["north"]
    assert not (folder.kits / "south").exists()


def test_kit_that_could_not_be_written_enrols_nobody(folder: ConsortiumFolder, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()

    with pytest.raises(ConfigurationError, match="Expected nothing at"):
        enrol_hospital(folder, "north", out=tmp_path / "taken")

    assert folder.read().hospitals == ()


def test_new_key_leaves_the_old_one_accepted_until_it_is_retired(folder: ConsortiumFolder) -> None:
    old = enrol_hospital(folder, "north").hospital
    folder.write(folder.read().having(old.model_copy(update={"node_id": "7"})))

    new = rekey_hospital(folder, "north")

    both = folder.read().find("north")
    assert new.kit == folder.kits / "north~2"
    assert Kit.read(new.kit).public_key == both.public_key != old.public_key
    assert (both.previous_key, both.previous_node_id, both.node_id) == (old.public_key, "7", "")
    after = retire_key(folder, "north")
    assert after.accepted_keys == (both.public_key,)
    assert [(key.public_key, key.node_id) for key in after.retired] == [(old.public_key, "7")]
    assert folder.read().find("north") == after


def test_third_key_waits_until_the_first_is_retired(folder: ConsortiumFolder) -> None:
    enrol_hospital(folder, "north")
    rekey_hospital(folder, "north")

    with pytest.raises(ConfigurationError, match="aegis enrol retire"):
        rekey_hospital(folder, "north")

    retire_key(folder, "north")
    assert rekey_hospital(folder, "north").kit == folder.kits / "north~3"


def test_hospital_with_one_key_has_none_to_retire(folder: ConsortiumFolder) -> None:
    enrol_hospital(folder, "north")

    with pytest.raises(ConfigurationError, match="nothing to retire"):
        retire_key(folder, "north")


def test_revoked_hospital_has_no_key_that_is_accepted(folder: ConsortiumFolder) -> None:
    enrol_hospital(folder, "north")
    rekey_hospital(folder, "north")

    revoke_hospital(folder, "north")

    assert folder.read().find("north").accepted_keys == ()
    assert folder.read().find("north").revoked == enrolment.today()
    with pytest.raises(ConfigurationError, match="was revoked on"):
        revoke_hospital(folder, "north")


def test_revoked_hospital_is_taken_in_again_only_when_asked_for_and_under_a_new_key_alone(
    folder: ConsortiumFolder,
) -> None:
    first = enrol_hospital(folder, "north").hospital.public_key
    second = rekey_hospital(folder, "north").hospital
    folder.write(folder.read().having(second.model_copy(update={"node_id": "7"})))
    revoke_hospital(folder, "north")
    with pytest.raises(ConfigurationError, match="--readmit"):
        rekey_hospital(folder, "north")
    with pytest.raises(ConfigurationError, match="found a key of 'north'"):
        rekey_hospital(folder, "north", public_key=first, readmit=True)

    again = rekey_hospital(folder, "north", readmit=True).hospital

    assert folder.read().find("north") == again
    assert again.accepted_keys == (again.public_key,)
    assert again.node_id == ""
    assert {key.public_key: key.node_id for key in again.retired} == {first: "", second.public_key: "7"}


def test_renewed_certificate_has_a_new_key_and_the_same_names_and_authority(folder: ConsortiumFolder) -> None:
    current = folder.server / "current" / "server.crt"
    old, others = read_pair(current), {path: path.read_bytes() for path in folder.path.glob("*.*")}

    renew_certificate(folder, days=30)

    new = read_pair(current)
    assert names_in(new.certificate) == names_in(old.certificate)
    assert new.key.public_key() != old.key.public_key()
    assert (new.certificate.not_valid_after_utc - new.certificate.not_valid_before_utc).days == 30
    new.certificate.verify_directly_issued_by(read_certificate(folder.authority))
    assert {path: path.read_bytes() for path in folder.path.glob("*.*")} == others


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: enrol_hospital(folder, "south"),
        lambda folder: rekey_hospital(folder, "north"),
        lambda folder: revoke_hospital(folder, "north"),
        lambda folder: retire_key(folder, "north"),
        lambda folder: renew_certificate(folder, days=1),
    ],
)
def test_nothing_is_changed_while_another_command_is_at_work(folder: ConsortiumFolder, change: Any) -> None:
    enrol_hospital(folder, "north")
    before = contents(folder.path)

    with folder.alone(), pytest.raises(ConfigurationError, match="another command at work"):
        change(folder)

    assert contents(folder.path) == before
