"""Certificates on the coordinator's disk: certificate and key fit each other at every moment."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from deploy.trust.authority import Pair, issue, make_authority, serial_of
from deploy.trust.certificate_files import install_server_pair, read_pair, write_pair
from federation.errors import ConfigurationError


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make_authority("Heart Network")


def fresh(authority: Pair) -> Pair:
    return issue(authority, ("fl.example.org",), days=90)


def test_pair_is_read_back_and_only_its_owner_may_read_the_key(tmp_path: Path, authority: Pair) -> None:
    write_pair(tmp_path / "ca.crt", authority)

    found = read_pair(tmp_path / "ca.crt")

    assert found.certificate == authority.certificate
    assert found.key.private_numbers() == authority.key.private_numbers()
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


def test_key_of_another_certificate_is_refused(tmp_path: Path, authority: Pair) -> None:
    write_pair(tmp_path / "a.crt", fresh(authority))
    (tmp_path / "a.key").write_bytes(fresh(authority).key_pem)

    with pytest.raises(ConfigurationError, match=r"private key of a.crt in .*a.key, found another"):
        read_pair(tmp_path / "a.crt")


@pytest.mark.parametrize(("name", "what"), [("a.crt", "a certificate"), ("a.key", "a private key")])
def test_file_that_is_missing_or_damaged_is_named(tmp_path: Path, authority: Pair, name: str, what: str) -> None:
    write_pair(tmp_path / "a.crt", authority)
    (tmp_path / name).write_text("hello")
    with pytest.raises(ConfigurationError, match=rf"Expected {what} in .*{name}, found none"):
        read_pair(tmp_path / "a.crt")

    (tmp_path / name).unlink()

    with pytest.raises(ConfigurationError, match=rf"Expected {what} in .*{name}, which cannot be read"):
        read_pair(tmp_path / "a.crt")


def test_current_is_a_relative_link_to_the_folder_named_after_the_serial_number(
    tmp_path: Path, authority: Pair
) -> None:
    pair = fresh(authority)

    place = install_server_pair(tmp_path / "server", pair)

    assert (tmp_path / "server" / "current").readlink() == Path(serial_of(pair.certificate))
    assert place == tmp_path / "server" / serial_of(pair.certificate)
    assert read_pair(tmp_path / "server" / "current" / "server.crt").certificate == pair.certificate
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_pair_before_stays_and_older_ones_are_deleted(tmp_path: Path, authority: Pair) -> None:
    places = [install_server_pair(tmp_path, fresh(authority)) for _ in range(3)]

    left = {path.name for path in tmp_path.iterdir()}

    assert left == {"current", places[1].name, places[2].name}
    assert serial_of(read_pair(places[1] / "server.crt").certificate) == places[1].name


def test_current_leads_to_a_fitting_pair_after_every_step_that_touches_the_disk(
    tmp_path: Path, authority: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "server"
    install_server_pair(server, fresh(authority))
    seen = []
    real = os.fsync

    def look_and_force(descriptor: int) -> None:
        real(descriptor)
        seen.append(read_pair(server / "current" / "server.crt").certificate.serial_number)

    monkeypatch.setattr(os, "fsync", look_and_force)
    new = fresh(authority)

    install_server_pair(server, new)

    assert len(set(seen)) == 2
    assert seen[-1] == new.certificate.serial_number
    assert seen == sorted(seen, key=seen.index)


def test_switch_that_fails_leaves_the_pair_before(
    tmp_path: Path, authority: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fresh(authority)
    install_server_pair(tmp_path, old)

    def refuse(self: Path, target: Path) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "symlink_to", refuse)
        with pytest.raises(OSError, match="no space left"):
            install_server_pair(tmp_path, fresh(authority))

    assert read_pair(tmp_path / "current" / "server.crt").certificate == old.certificate
