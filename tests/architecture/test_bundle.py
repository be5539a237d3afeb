"""The app bundle that Flower sends to hospitals holds what runs there, and its configuration is that of the models."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from federation.config import Configuration, flatten, parse_configuration

ROOT = Path(__file__).parents[2]
SHIPPED = ("federation", "aegis_cache", "client_app", "server_app")
STAYS_AT_HOME = ("server_app/simulation", "aegis_cache/")
COMES_ALONG = ("aegis_cache/__init__.py", "aegis_cache/store/")
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", ".mypy_cache", ".ruff_cache")

# Where the app's values differ from the defaults on purpose, so that the first run has a name and is worth looking at.
DELIBERATE = {"run.name": "demo", "data.site-shift": 0.15}


def flat_app_configuration() -> dict[str, Any]:
    """Return `[tool.flwr.app.config]` as Flower flattens it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tables: dict[str, dict[str, Any]] = project["tool"]["flwr"]["app"]["config"]
    return {f"{table}.{key}": value for table, content in tables.items() for key, value in content.items()}


def build_bundle(app: Path, out: Path) -> set[str]:
    """Return the names of the files in the bundle that `flwr build` makes of the folder `app` and leaves in `out`."""
    out.mkdir()
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(out / "flwr-home")}
    flwr = Path(sys.executable).with_name("flwr")
    done = subprocess.run(
        [flwr, "build", "--app", app], cwd=out, env=os.environ | quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (bundle,) = out.glob("*.fab")
    with zipfile.ZipFile(bundle) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def app_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of this repository in a folder whose name Flower accepts."""
    app = tmp_path_factory.mktemp("tree") / "aegis-fl"
    shutil.copytree(ROOT, app, ignore=NOT_COPIED)
    return app


def test_bundle_holds_the_code_that_runs_at_both_ends_and_nothing_else(app_copy: Path, tmp_path: Path) -> None:
    code = {path.relative_to(app_copy).as_posix() for package in SHIPPED for path in (app_copy / package).rglob("*.py")}
    expected = {name for name in code if name.startswith(COMES_ALONG) or not name.startswith(STAYS_AT_HOME)}

    names = build_bundle(app_copy, tmp_path / "out")

    assert names == expected | {"pyproject.toml", "README.md", "LICENSE", ".info/CONTENT"}


def test_bundle_leaves_out_files_that_nobody_thought_of(app_copy: Path, tmp_path: Path) -> None:
    strays = ["patients.json", "notes.md", "site.toml", "scripts/export.py", "client_app/cases.jsonl", ".github/x.yml"]
    for stray in strays:
        (app_copy / stray).parent.mkdir(parents=True, exist_ok=True)
        (app_copy / stray).touch()

    names = build_bundle(app_copy, tmp_path / "out")

    assert names.isdisjoint(strays)
    assert not [name for name in names if name.startswith(("attacks/", "deploy/", "tests/", "docs/"))]


def test_app_configuration_holds_every_key_of_the_models() -> None:
    assert set(flat_app_configuration()) == set(flatten(Configuration()))


def test_app_configuration_holds_the_defaults_but_for_deliberate_differences() -> None:
    expected = flatten(Configuration()) | DELIBERATE

    found = flat_app_configuration()

    assert {key: (type(value), value) for key, value in found.items()} == {
        key: (type(value), value) for key, value in expected.items()
    }


def test_app_configuration_is_accepted() -> None:
    configuration = parse_configuration(flat_app_configuration())

    assert configuration.run.name == "demo"
    assert configuration.data.site_shift == 0.15
