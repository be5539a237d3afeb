"""`aegis bundle`: exit codes, and the fingerprint that is compared on the telephone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.bundle.command import bundle
from deploy.trust.signing import fingerprint, private_pem, public_pem
from tests.deploy.bundle.packed import KEY, PUBLIC, Packed


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(bundle, list(map(str, arguments)))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "bundle.key").write_bytes(private_pem(KEY))
    (tmp_path / "bundle.pub").write_bytes(public_pem(PUBLIC))
    return tmp_path


def make(packed: Packed, keys: Path, *arguments: str) -> Result:
    made_of: list[str | Path] = [
        "--kit",
        packed.sources.kit,
        "--image",
        packed.sources.image,
        "--docs",
        packed.sources.docs[0],
    ]
    return invoke("make", *made_of, "--key", keys / "bundle.key", "--out", keys / "out.tar", *arguments)


def test_bundle_is_made_and_verified_and_both_show_the_fingerprint(packed: Packed, keys: Path) -> None:
    made = make(packed, keys)
    verified = invoke("verify", keys / "out.tar", "--public-key", keys / "bundle.pub")

    assert (made.exit_code, verified.exit_code) == (0, 0)
    assert (keys / "out.tar").read_bytes() == packed.content
    assert fingerprint(PUBLIC) in made.stdout
    assert fingerprint(PUBLIC) in verified.stdout
    assert "For north in Heart Network" in verified.stdout


def test_machines_read_the_same(packed: Packed, keys: Path) -> None:
    made = json.loads(make(packed, keys, "--json").stdout)
    options: list[str | Path] = ["--public-key", keys / "bundle.pub", "--extract", keys / "unpacked", "--json"]
    verified = json.loads(invoke("verify", keys / "out.tar", *options).stdout)

    assert made["fingerprint"] == verified["fingerprint"] == fingerprint(PUBLIC)
    assert made["size-bytes"] == (keys / "out.tar").stat().st_size
    assert (verified["status"], verified["kind"]) == ("sound", "bundle")
    assert verified["contents"]["image"] == made["image"]
    assert (keys / "unpacked" / "kit" / "kit.toml").is_file()


def test_kit_is_verified_as_one(packed: Packed, keys: Path) -> None:
    found = json.loads(invoke("verify", packed.sources.kit, "--public-key", keys / "bundle.pub", "--json").stdout)

    assert (found["kind"], found["contents"]) == ("kit", None)


def test_bundle_that_is_not_what_was_signed_exits_with_one_and_leaves_nothing(packed: Packed, keys: Path) -> None:
    (keys / "out.tar").write_bytes(packed.content[:-1])

    options: list[str | Path] = ["--public-key", keys / "bundle.pub", "--extract", keys / "unpacked", "--json"]
    result = invoke("verify", keys / "out.tar", *options)

    assert (result.exit_code, json.loads(result.stdout)["status"]) == (1, "failed")
    assert not (keys / "unpacked").exists()


@pytest.mark.parametrize("missing", ["bundle.key", "bundle.pub"])
def test_missing_key_is_wrong_usage(packed: Packed, keys: Path, missing: str) -> None:
    (keys / missing).unlink()

    made = make(packed, keys)
    verified = invoke("verify", packed.archive, "--public-key", keys / "bundle.pub")

    assert (made.exit_code, verified.exit_code) == ((2, 0) if missing == "bundle.key" else (0, 2))
