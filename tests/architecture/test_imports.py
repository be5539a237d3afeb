"""This repository obeys the import rules, and each rule catches a tree that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.import_rules import LAYERS, find_modules, violations

ROOT = Path(__file__).parents[2]


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write `files` and the `__init__.py` of every package above them below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for folder in path.relative_to(root).parents[:-1]:
            (root / folder / "__init__.py").touch()
    return root


def test_this_repository_obeys_every_import_rule() -> None:
    assert violations(ROOT) == []


def test_every_package_of_this_repository_has_its_layer() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}

    assert packages == set(LAYERS)


def test_checker_reads_the_modules_of_this_repository() -> None:
    modules = find_modules(ROOT)

    assert {"federation", "federation.errors", "federation.config.tables", "server_app", "deploy"} <= set(modules)


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("federation/a.py", "import server_app"),
        ("federation/a.py", "from aegis_cache.store import Cache"),
        ("aegis_cache/store.py", "import client_app.main"),
        ("client_app/main.py", "import server_app.main as helper"),
        ("client_app/main.py", "from server_app import main"),
        ("client_app/main.py", "from aegis_cache.build import build"),
        ("client_app/main.py", "from aegis_cache import build"),
        ("client_app/main.py", "import aegis_cache"),
        ("server_app/main.py", "from client_app.main import app"),
        ("server_app/main.py", "from aegis_cache.store import Cache"),
        ("server_app/main.py", "from attacks.inversion import invert"),
        ("client_app/main.py", "import attacks"),
        ("attacks/a.py", "from deploy.cli import main"),
        ("federation/a.py", "from deploy import cli"),
        ("federation/config/__init__.py", "from attacks import *"),
        ("federation/a.py", "def load():\n    import client_app.training"),
        ("federation/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from client_app.main import app"),
        ("federation/a.py", "try:\n    import client_app\nexcept ImportError:\n    client_app = None"),
        ("federation/a.py", "import importlib\nimportlib.import_module('client_app.x')"),
        ("federation/a.py", "from importlib import import_module\nimport_module(name='attacks')"),
        ("federation/a.py", "from importlib import import_module as load\nload('client_app.x')"),
        ("federation/a.py", "__import__('client_app.x')"),
        ("federation/a.py", "import runpy\nrunpy.run_module('client_app.x')"),
    ],
)
def test_import_across_layers_is_caught(tmp_path: Path, module: str, statement: str) -> None:
    root = plant(tmp_path, {module: statement})

    found = violations(root)

    assert any("may import of ours only" in sentence for sentence in found), found


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("aegis_cache/store.py", "from federation.errors import DataError"),
        ("client_app/main.py", "from aegis_cache.store import Cache"),
        ("attacks/a.py", "import client_app.main, server_app.main, aegis_cache.build"),
        ("deploy/cli.py", "import attacks.inversion"),
        ("client_app/main.py", "import attacks_of_others, server_application"),
        ("client_app/a.py", "from . import b\nfrom .b import c"),
    ],
)
def test_import_within_the_rules_passes(tmp_path: Path, module: str, statement: str) -> None:
    root = plant(tmp_path, {module: statement})

    assert violations(root) == []


def test_module_imported_by_name_from_its_package_is_judged_as_that_module(tmp_path: Path) -> None:
    files = {"client_app/main.py": "from aegis_cache import store", "aegis_cache/store.py": ""}

    assert violations(plant(tmp_path, files)) == []


@pytest.mark.parametrize(
    ("module", "statement", "library"),
    [
        ("client_app/training.py", "import opacus", "opacus"),
        ("aegis_cache/build.py", "def build():\n    from diffusers import UNet2DModel", "diffusers"),
        ("client_app/ledger.py", "from dp_accounting.pld import accountant", "dp_accounting"),
        ("federation/datasets/folder.py", "import pydicom as dicom", "pydicom"),
        ("federation/datasets/folder.py", "import medmnist", "medmnist"),
        ("client_app/training.py", "import torchvision.transforms", "torchvision"),
        ("federation/metrics.py", "import matplotlib.pyplot as plt", "matplotlib"),
        ("client_app/status.py", "import jinja2", "jinja2"),
        ("server_app/simulation/engine.py", "import ray", "ray"),
        ("client_app/training.py", "from flwr.app import Message", "flwr"),
        ("server_app/engine.py", "if False:\n    import flwr", "flwr"),
        ("attacks/a.py", "import importlib\nimportlib.import_module('flwr.app')", "flwr"),
        ("aegis_cache/store.py", "import flwr", "flwr"),
        ("client_app/mainframe.py", "import flwr", "flwr"),
    ],
)
def test_heavy_library_behind_the_wrong_door_is_caught(
    tmp_path: Path, module: str, statement: str, library: str
) -> None:
    root = plant(tmp_path, {module: statement})

    found = violations(root)

    assert any(f"{library} belongs to" in sentence for sentence in found), found


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("client_app/dp_sgd.py", "import opacus"),
        ("aegis_cache/generation/unet.py", "import diffusers"),
        ("federation/accounting/pld.py", "import dp_accounting"),
        ("federation/datasets/medmnist.py", "import medmnist, torchvision"),
        ("server_app/report.py", "import matplotlib, jinja2"),
        ("server_app/simulation/grid.py", "from flwr.serverapp import Grid"),
        ("federation/records.py", "from flwr.app import RecordDict"),
        ("deploy/status.py", "import flwr, jinja2"),
    ],
)
def test_heavy_library_behind_its_own_door_passes(tmp_path: Path, module: str, statement: str) -> None:
    root = plant(tmp_path, {module: statement})

    assert violations(root) == []


@pytest.mark.parametrize(
    "files",
    [
        {"federation/a.py": "import federation.b", "federation/b.py": "import federation.a"},
        {"federation/a.py": "from federation import b", "federation/b.py": "from federation.a import thing"},
        {"federation/a.py": "from . import b", "federation/b.py": "from .a import thing"},
        {"federation/a.py": "import federation.b as b", "federation/b.py": "def late():\n    from federation import a"},
        {
            "federation/a.py": "from federation.b import B",
            "federation/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from federation.a import A",
        },
        {
            "federation/a.py": "import federation.b",
            "federation/b.py": "import federation.c",
            "federation/c.py": "import importlib\nimportlib.import_module('federation.a')",
        },
        {"federation/b/__init__.py": "from federation.b.c import d", "federation/b/c.py": "from federation.b import e"},
        {"federation/b/__init__.py": "from .c import d", "federation/b/c.py": "from . import e"},
        {
            "federation/b/__init__.py": "from federation.b.c import d",
            "federation/b/c.py": "import federation.a",
            "federation/a.py": "import federation.b.leaf",
            "federation/b/leaf.py": "",
        },
    ],
    ids=[
        "plain",
        "from",
        "relative",
        "lazy",
        "type-checking",
        "three-dynamic",
        "package-and-part",
        "relative-package",
        "through-init",
    ],
)
def test_import_cycle_is_caught(tmp_path: Path, files: dict[str, str]) -> None:
    root = plant(tmp_path, files)

    found = violations(root)

    assert any(sentence.startswith("Import cycle: federation.") for sentence in found), found


def test_package_that_exports_its_parts_is_no_cycle(tmp_path: Path) -> None:
    files = {
        "federation/b/__init__.py": "from federation.b.c import d\nfrom federation.b.e import f",
        "federation/b/c.py": "from federation.b.e import f",
        "federation/b/e.py": "",
        "federation/a.py": "from federation.b import d",
    }

    assert violations(plant(tmp_path, files)) == []


def test_read_side_of_the_cache_that_reaches_the_generator_is_caught(tmp_path: Path) -> None:
    files = {
        "client_app/masking.py": "from aegis_cache.store import Cache",
        "aegis_cache/store.py": "from . import manifest",
        "aegis_cache/manifest.py": "def late():\n    from aegis_cache.generation import sample",
        "aegis_cache/generation.py": "import diffusers",
    }

    found = violations(plant(tmp_path, files))

    assert found == [
        "aegis_cache.store reaches aegis_cache.generation through its imports.",
        "client_app reaches aegis_cache.generation through its imports.",
    ]


def test_server_that_reaches_the_simulation_is_caught(tmp_path: Path) -> None:
    files = {
        "server_app/main.py": "from server_app.engine import run",
        "server_app/engine.py": "def run():\n    import server_app.simulation.grid",
        "server_app/simulation/grid.py": "from flwr.serverapp import Grid",
    }

    found = violations(plant(tmp_path, files))

    assert "server_app.main reaches server_app.simulation.grid through its imports." in found


def test_import_of_a_computed_name_is_caught(tmp_path: Path) -> None:
    root = plant(tmp_path, {"federation/a.py": "import importlib\nimportlib.import_module('client' + '_app')"})

    assert violations(root) == [
        "federation.a, line 2, imports a computed name: write the name of the module as literal text."
    ]
