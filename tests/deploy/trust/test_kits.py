"""What is in a kit, whether a hospital can use it as it is, and that it appears whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_app.policy import read_policy
from deploy.policy import find_doubts
from deploy.trust import kits
from deploy.trust.hospital_key import make_key, public_line
from deploy.trust.kit import Kit
from deploy.trust.kits import KitContents, next_place, read_compose, write_kit
from deploy.trust.manifest import verify_folder
from federation.errors import ConfigurationError

SIGNER = Ed25519PrivateKey.generate()
NODE = make_key()


def made_contents(*, hospital: str = "north", with_key: bool = True, compose: str = "services: {}\n") -> KitContents:
    line = public_line(NODE.public_key())
    kit = Kit(consortium="Heart & Co", hospital_id=hospital, host="fl.example.org", port=8443, public_key=line)
    return KitContents(kit=kit, authority=b"CA\n", private_key=NODE if with_key else None, compose=compose)


def test_kit_holds_what_a_hospital_needs_and_only_the_private_key_is_secret(tmp_path: Path) -> None:
    write_kit(tmp_path / "north", made_contents(), SIGNER)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "north").iterdir()}
    assert {name for name, mode in modes.items() if mode & 0o077 == 0} == {"node.key"}
    assert set(modes) == {
        *("kit.toml", "ca.crt", "node.key", "node.key.pub", "site.toml", "README.md", ".env"),
        *("compose.yaml", "compose.gpu.yaml", "SHA256SUMS", "SHA256SUMS.sig"),
    }
    assert stat.S_IMODE((tmp_path / "north").stat().st_mode) == 0o700
    assert Kit.read(tmp_path / "north") == made_contents().kit


@pytest.mark.parametrize("hospital", ["north", "x" * 64, "a.b-c_d"])
def test_site_policy_is_usable_as_it_is(tmp_path: Path, hospital: str) -> None:
    write_kit(tmp_path / "kit", made_contents(hospital=hospital), SIGNER)

    policy = read_policy(tmp_path / "kit" / "site.toml")

    assert policy.hospital_id == hospital
    assert (policy.state_dir, policy.keys_dir, policy.data.root) == ("/var/lib/aegis", "/var/lib/aegis-keys", "/data")
    assert policy.privacy.mechanisms == ("dp-sgd",)
    assert (policy.privacy.max_epsilon, policy.privacy.max_delta) == (8.0, 1e-5)
    assert (policy.models.allowed, policy.masking.required, policy.evaluation.metrics) == (("cnn",), False, "noised")
    assert [doubt for doubt in find_doubts(policy) if "does not exist" not in doubt] == []


def test_instructions_take_at_most_six_commands_and_name_the_server(tmp_path: Path) -> None:
    write_kit(tmp_path / "north", made_contents(), SIGNER)

    text = (tmp_path / "north" / "README.md").read_text()

    assert "# north in Heart & Co" in text
    assert "fl.example.org:8443" in text
    assert "$" not in text
    assert 1 <= sum(text.count(word) for word in ("`docker ", "`sudo ", "`openssl ", "`sha256sum ")) <= 6


def test_settings_name_the_image_of_this_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kits, "version", lambda _: "7.8.9")

    write_kit(tmp_path / "north", made_contents(), SIGNER)

    lines = (tmp_path / "north" / ".env").read_text().splitlines()
    assert {"AEGIS_HOSPITAL_IMAGE=aegis-hospital:7.8.9", "AEGIS_DATA=./data"} <= set(lines)


def test_whole_kit_is_signed(tmp_path: Path) -> None:
    write_kit(tmp_path / "north", made_contents(), SIGNER)

    signed = verify_folder(tmp_path / "north", SIGNER.public_key())

    assert {"kit.toml", "node.key", "ca.crt", ".env", "compose.yaml", "compose.gpu.yaml"} < set(signed.digests)


def test_kit_without_compose_file_leaves_it_out(tmp_path: Path) -> None:
    write_kit(tmp_path / "north", made_contents(compose=""), SIGNER)

    assert not list((tmp_path / "north").glob("compose*"))
    assert read_compose(tmp_path / "nothing.yaml") == ""


def test_compose_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("image: ${AEGIS_HOSPITAL_IMAGE}\n")

    write_kit(tmp_path / "north", made_contents(compose=read_compose(tmp_path / "compose.yaml")), SIGNER)

    assert (tmp_path / "north" / "compose.yaml").read_text() == "image: ${AEGIS_HOSPITAL_IMAGE}\n"


@pytest.mark.parametrize("link", [False, True])
def test_nothing_is_overwritten(tmp_path: Path, link: bool) -> None:
    if link:
        (tmp_path / "north").symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "north").write_text("mine")

    with pytest.raises(ConfigurationError, match="Expected nothing at"):
        write_kit(tmp_path / "north", made_contents(), SIGNER)

    assert [path.name for path in tmp_path.iterdir()] == ["north"]


def test_kit_that_cannot_be_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(folder: Path, key: Ed25519PrivateKey) -> bytes:
        raise OSError("no space left")

    monkeypatch.setattr(kits, "sign_folder", break_off)

    with pytest.raises(OSError, match="no space left"):
        write_kit(tmp_path / "north", made_contents(), SIGNER)

    assert list(tmp_path.iterdir()) == []


def test_next_kits_get_numbers_that_no_id_can_have(tmp_path: Path) -> None:
    places = []
    for _ in range(3):
        places.append(next_place(tmp_path, "north"))
        places[-1].mkdir()

    assert [place.name for place in places] == ["north", "north~2", "north~3"]
