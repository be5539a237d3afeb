"""`aegis policy check`: what a file allows, in words, before anything relies on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import Result
from typer.testing import CliRunner

from aegis_cache.store.provenance import Provenance, Source
from deploy.cli import main
from tests.client_app.masking.made_up_caches import make_cache

POLICY: dict[str, Any] = {
    "hospital-id": "north",
    "state-dir": "/srv/state",
    "keys-dir": "/srv/keys",
    "data": {"id": "chest", "name": "folder", "root": "/"},
    "privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": 4.0, "max-delta": 1e-5},
    "models": {"allowed": ["cnn"]},
    "evaluation": {"metrics": "noised"},
}


def check(folder: Path, *arguments: str, **tables: Any) -> Result:
    path = folder / "site.toml"
    path.write_text(tomli_w.dumps(POLICY | tables))
    return CliRunner().invoke(main, ["policy", "check", str(path), *arguments])


def test_sound_policy_is_said_in_words(tmp_path: Path) -> None:
    result = check(tmp_path)

    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "dp-sgd, at most epsilon 4 at delta 1e-05 over everything ever released from 'chest'" in text
    assert "Models trained: cnn." in text
    assert "!" not in text


@pytest.mark.parametrize(
    ("tables", "doubt"),
    [
        ({"privacy": {"mechanisms": ["none"]}}, "can try to reconstruct images"),
        ({"privacy": POLICY["privacy"] | {"mechanisms": ["dp-sgd", "update-gaussian"]}}, "different units"),
        ({"evaluation": {"metrics": "exact"}}, "reveal labels"),
        ({"models": {}}, "refuse every training task"),
        ({"privacy": {}}, "refuse every training task"),
        ({"data": POLICY["data"] | {"root": "/nowhere/at/all"}}, "does not exist"),
    ],
)
def test_what_to_think_about_is_said(tmp_path: Path, tables: dict[str, Any], doubt: str) -> None:
    content = json.loads(check(tmp_path, "--json", **tables).stdout)

    assert content["usable"]
    assert any(doubt in sentence for sentence in content["doubts"])


@pytest.mark.parametrize(
    ("masking", "mechanism", "doubt"),
    [
        ({"required": True}, "dp-sgd", "without masking.cache"),
        ({"required": True, "modes": ["sequential"]}, "dp-sgd", "hides hardly anything"),
        ({"cache": "/nowhere/at/all"}, "dp-sgd", "cannot be used"),
        ({"cache": "FILTERED"}, "dp-sgd", "provenance.source = 'private-filtered'"),
        ({"cache": "FILTERED"}, "update-gaussian", None),
        ({"cache": "PUBLIC"}, "dp-sgd", None),
    ],
)
def test_masking_that_will_not_work_is_said(
    tmp_path: Path, masking: dict[str, Any], mechanism: str, doubt: str | None
) -> None:
    filtered = Provenance(source=Source.PRIVATE_FILTERED, uses=("images were compared with private ones",))
    for name, provenance in (("FILTERED", filtered), ("PUBLIC", Provenance.public())):
        make_cache(tmp_path / name, images=4, provenance=provenance)
    if masking.get("cache") in ("FILTERED", "PUBLIC"):
        masking = {"cache": str(tmp_path / masking["cache"])}
    privacy = POLICY["privacy"] | {"mechanisms": [mechanism]}

    doubts = json.loads(check(tmp_path, "--json", masking=masking, privacy=privacy).stdout)["doubts"]

    if doubt is None:
        assert doubts == []
    else:
        assert any(doubt in sentence for sentence in doubts)


def test_required_masking_is_said_and_not_called_private(tmp_path: Path) -> None:
    result = check(tmp_path, masking={"required": True, "min-size": 2048})

    text = " ".join(result.stdout.split())
    assert "Every update is masked, interleaved or joint, by at least 2048 synthetic images" in text
    assert "no differential privacy" in text


def test_impossible_policy_exits_with_two_and_its_reason(tmp_path: Path) -> None:
    wrong = {"privacy": {"mechanisms": ["dp-sgd"]}}

    assert check(tmp_path, **wrong).exit_code == 2
    content = json.loads(check(tmp_path, "--json", **wrong).stdout)
    assert (content["usable"], "max-epsilon > 0" in content["reason"]) == (False, True)


def test_copies_of_what_leaves_are_said_where_they_are_kept_and_only_there(tmp_path: Path) -> None:
    without = check(tmp_path).stdout
    with_copies = check(tmp_path, outbox={"folder": "/mnt/outbox", "keep": 7}, data=POLICY["data"] | {"root": "/srv"})

    assert "copied" not in without
    text = " ".join(with_copies.stdout.split())
    assert "The newest 7 updates that leave are copied to /mnt/outbox, exactly as sent" in text
