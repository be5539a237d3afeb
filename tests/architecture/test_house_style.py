"""Product code keeps to the house style, and each rule catches a snippet that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.import_rules import LAYERS
from tests.architecture.style_rules import (
    BROAD_EXCEPT_FILES,
    LONG_FILES,
    LONG_FUNCTIONS,
    find_product_files,
    find_style_violations,
)

ROOT = Path(__file__).parents[2]


def function_of(lines: int) -> str:
    """Return a module whose one function has `lines` lines of code, its `def` among them."""
    body = "\n\n    # a comment\n".join(["    x = 1"] * (lines - 1))
    return f'"""Module."""\ndef f():\n    """Docstring.\n\n    Of several lines.\n    """\n{body}\n'


def test_product_code_keeps_to_the_house_style() -> None:
    files = find_product_files(ROOT, tuple(LAYERS))

    found = [
        sentence
        for path in files
        for sentence in find_style_violations(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]

    assert found == []


def test_every_exception_to_the_sizes_is_still_needed() -> None:
    named = [*LONG_FILES, *(entry.partition(":")[0] for entry in LONG_FUNCTIONS)]

    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("snippet", "expected"),
    [
        (function_of(41), "f has 41 lines of code, expected at most 40"),
        ('"""Module."""\n' + "\n" * 300, "301 lines, expected at most 300"),
        ("x = 1\n", "the module has no docstring"),
        ('"""M."""\ndef f():\n    pass\n', "f is public and has no docstring"),
        ('"""M."""\nasync def f():\n    pass\n', "f is public and has no docstring"),
        ('"""M."""\nclass C:\n    x = 1\n', "C is public and has no docstring"),
        ('"""M."""\nclass C:\n    """C."""\n    def f(self):\n        pass\n', "C.f is public and has no docstring"),
        ('"""M."""\nassert x\n', "line 2: assert"),
        ('"""M."""\nprint("x")\n', "line 2: print"),
        ('"""M."""\ntry:\n    x\nexcept:\n    y\n', "line 4: broad except"),
        ('"""M."""\ntry:\n    x\nexcept Exception:\n    y\n', "line 4: broad except"),
        ('"""M."""\ntry:\n    x\nexcept (OSError, builtins.BaseException) as e:\n    y\n', "line 4: broad except"),
        ('"""M."""\nwith contextlib.suppress(Exception):\n    x\n', "line 2: broad except"),
    ],
)
def test_snippet_that_breaks_a_rule_is_caught(snippet: str, expected: str) -> None:
    found = find_style_violations("federation/example.py", snippet)

    assert len(found) == 1, found
    assert expected in found[0]


@pytest.mark.parametrize(
    "snippet",
    [
        function_of(40),
        '"""Module."""\n' + "\n" * 299,
        '"""M."""\ndef _f():\n    def inner():\n        pass\n',
        '"""M."""\nclass C:\n    """C."""\n    @override\n    def f(self):\n        pass\n',
        '"""M."""\ntry:\n    x\nexcept (OSError, ValueError):\n    console.print(x)\n',
    ],
)
def test_snippet_within_the_rules_passes(snippet: str) -> None:
    assert find_style_violations("federation/example.py", snippet) == []


@pytest.mark.parametrize("name", sorted(BROAD_EXCEPT_FILES))
def test_broad_except_passes_only_where_errors_become_codes(name: str) -> None:
    snippet = '"""M."""\ntry:\n    x\nexcept Exception:\n    y\n'

    assert find_style_violations(name, snippet) == []
