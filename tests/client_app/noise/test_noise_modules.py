"""Seeds and foreign generators stand in `simulated` alone: the source text of the noise package is searched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import client_app.noise

FOLDER = Path(client_app.noise.__file__).parent
MODULES = sorted(path.name for path in FOLDER.rglob("*.py") if path.name != "simulated.py")
FORBIDDEN = {
    "Generator",
    "RandomState",
    "bernoulli",
    "default_generator",
    "default_rng",
    "fork_rng",
    "initial_seed",
    "manual_seed",
    "multinomial",
    "normal_",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "random",
    "randperm",
    "secrets",
    "seed",
    "set_rng_state",
    "uniform_",
}
FORBIDDEN_CALLS = {"torch.normal", "torch.random", "np.random", "numpy.random"}


def find_generators(source: str) -> set[str]:
    """Return what in `source` draws from, or seeds, anything but the operating system."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found |= {node.attr} & FORBIDDEN | {ast.unparse(node)} & FORBIDDEN_CALLS
        elif isinstance(node, ast.Name):
            found |= {node.id} & FORBIDDEN
        elif isinstance(node, ast.arg):
            found |= {node.arg} & FORBIDDEN
        elif isinstance(node, ast.alias):
            found |= {*node.name.split("."), node.asname or ""} & FORBIDDEN
        elif isinstance(node, ast.ImportFrom):
            found |= set((node.module or "").split(".")) & FORBIDDEN
    return found


@pytest.mark.parametrize("name", MODULES)
def test_no_module_but_the_simulated_source_knows_seeds_or_generators(name: str) -> None:
    assert find_generators((FOLDER / name).read_text(encoding="utf-8")) == set()


def test_the_modules_of_the_production_source_are_among_those_searched() -> None:
    assert {"cryptographic.py", "keystream.py", "box_muller.py"} <= set(MODULES)


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "from torch.random import fork_rng",
        "from numpy.random import default_rng as g",
        "torch.randn(3)",
        "torch.normal(0.0, 1.0, (3,))",
        "np.random.normal()",
        "x.normal_()",
        "def f(seed): pass",
        "torch.manual_seed(1)",
    ],
)
def test_search_finds_every_kind_of_foreign_generator(source: str) -> None:
    assert find_generators(source)


def test_simulated_source_would_be_found() -> None:
    found = find_generators((FOLDER / "simulated.py").read_text(encoding="utf-8"))

    assert {"seed", "manual_seed", "Generator"} <= found
