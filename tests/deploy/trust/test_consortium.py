"""`consortium.toml`: what may stand in it, and who may change it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deploy.trust.consortium import Consortium, Hospital, RetiredKey
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.hospital_key import make_key, public_line
from federation.errors import ConfigurationError

KEYS = [public_line(make_key().public_key()) for _ in range(4)]
CONSORTIUM = Consortium(name="Heart Network", host="fl.example.org", created="2026-11-30")


def hospital(name: str, key: str, **other: Any) -> Hospital:
    return Hospital(id=name, public_key=key, enrolled="2026-11-30", **other)


def test_everything_is_read_back_from_the_file(tmp_path: Path) -> None:
    retired = (RetiredKey(public_key=KEYS[2], node_id="18446744073709551615"),)
    full = CONSORTIUM.having(hospital("north", KEYS[0], previous_key=KEYS[1], node_id="7", retired=retired))
    folder = ConsortiumFolder(path=tmp_path)

    folder.write(full)

    assert folder.read() == full
    assert "public-key" in folder.toml.read_text()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", "", "printable characters"),
        ("name", "a\nb", "printable characters"),
        ("name", "x" * 65, "printable characters"),
        ("host", "https://fl.example.org", "name of a host"),
        ("host", "fl.example.org:8443", "name of a host"),
        ("port", 0, "greater than or equal to 1"),
        ("port", 65536, "less than or equal to 65535"),
        ("sans", ("a b",), "names of hosts"),
        ("internal_sans", ("a b",), "names of hosts"),
        ("format", 2, "less than or equal to 1"),
        ("unknown", 1, "Extra inputs"),
    ],
)
def test_impossible_consortium_is_refused(key: str, value: object, message: str) -> None:
    fields = {"name": "Heart Network", "host": "fl.example.org", "created": "2026-11-30", key: value}

    with pytest.raises(ValidationError, match=message):
        Consortium.model_validate(fields)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": "a/b"}, "letters, digits"),
        ({"public_key": ""}, "ecdsa-sha2-nistp384"),
        ({"public_key": f"{KEYS[0]} comment"}, "without a comment"),
        ({"previous_key": "hello"}, "ecdsa-sha2-nistp384"),
        ({"revoked": "yesterday"}, "isoformat"),
    ],
)
def test_impossible_hospital_is_refused(changed: dict[str, Any], message: str) -> None:
    fields = {"id": "north", "public_key": KEYS[0], "enrolled": "2026-11-30"} | changed

    with pytest.raises(ValidationError, match=message):
        Hospital.model_validate(fields)


@pytest.mark.parametrize(
    "hospitals",
    [
        (hospital("north", KEYS[0]), hospital("north", KEYS[1])),
        (hospital("north", KEYS[0]), hospital("south", KEYS[0])),
        (hospital("north", KEYS[0]), hospital("south", KEYS[1], previous_key=KEYS[0])),
        (hospital("north", KEYS[0], retired=(RetiredKey(public_key=KEYS[1]),)), hospital("south", KEYS[1])),
    ],
)
def test_id_or_key_of_two_hospitals_is_refused(hospitals: tuple[Hospital, ...], tmp_path: Path) -> None:
    both = CONSORTIUM.model_copy(update={"hospitals": hospitals})

    with pytest.raises(ValidationError, match="found one twice"):
        ConsortiumFolder(path=tmp_path).write(both)

    assert not list(tmp_path.iterdir())


def test_revoked_hospital_has_no_accepted_key() -> None:
    taking_part = hospital("north", KEYS[0], previous_key=KEYS[1])

    assert taking_part.accepted_keys == (KEYS[0], KEYS[1])
    assert taking_part.model_copy(update={"revoked": "2026-12-01"}).accepted_keys == ()


def test_owner_of_a_key_is_found_also_when_it_is_retired() -> None:
    full = CONSORTIUM.having(hospital("north", KEYS[0], retired=(RetiredKey(public_key=KEYS[1]),)))

    assert [full.owner_of(key) for key in KEYS[:3]] == ["north", "north", ""]


def test_changed_hospital_takes_the_place_of_the_old_one() -> None:
    two = CONSORTIUM.having(hospital("north", KEYS[0])).having(hospital("south", KEYS[1]))

    changed = two.having(hospital("north", KEYS[2]))

    assert [(found.id, found.public_key) for found in changed.hospitals] == [("north", KEYS[2]), ("south", KEYS[1])]


def test_hospital_that_is_not_enrolled_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match="found 'west'; enrolled: north"):
        CONSORTIUM.having(hospital("north", KEYS[0])).find("west")


def test_server_carries_each_of_its_names_once() -> None:
    found = CONSORTIUM.model_copy(update={"sans": ("10.0.0.1", "fl.example.org")})

    assert found.server_names == ("fl.example.org", "10.0.0.1")


def test_folder_without_a_consortium_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"found no consortium.toml: aegis enrol init makes one"):
        ConsortiumFolder(path=tmp_path).read()
    with (
        pytest.raises(ConfigurationError, match="found none: aegis enrol init makes it"),
        ConsortiumFolder(path=tmp_path / "missing").alone(),
    ):
        pass


@pytest.mark.parametrize(("text", "message"), [("[", "cannot be read"), ("name = 1", "name: Input should be")])
def test_damaged_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "consortium.toml").write_text(text)

    with pytest.raises(ConfigurationError, match=message) as caught:
        ConsortiumFolder(path=tmp_path).read()

    assert str(tmp_path / "consortium.toml") in str(caught.value)


def test_second_command_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    folder = ConsortiumFolder(path=tmp_path)

    with (
        folder.alone(),
        pytest.raises(ConfigurationError, match="found another command at work"),
        folder.alone(),
    ):
        pass

    with folder.alone():
        pass


def test_error_of_whoever_is_alone_is_told_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError, match="its own"), ConsortiumFolder(path=tmp_path).alone():
        raise BlockingIOError("its own")


def test_lock_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))

    with ConsortiumFolder(path=tmp_path).alone():
        pass

    assert len(list(Path("/proc/self/fd").iterdir())) == before
