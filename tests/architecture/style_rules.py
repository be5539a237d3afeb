"""The rules of style that a machine can check: sizes, docstrings, and what product code never does.

`test_house_style.py` applies them to this repository and to snippets that break them on purpose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

MAX_FUNCTION_LINES = 40
MAX_FILE_LINES = 300

# File -> why it may be longer than MAX_FILE_LINES.
LONG_FILES: dict[str, str] = {}

# File:function -> why it may be longer than MAX_FUNCTION_LINES.
LONG_FUNCTIONS: dict[str, str] = {}

# The place that turns whatever went wrong into a code: the hospital's reply.
BROAD_EXCEPT_FILES = frozenset({"client_app/boundary.py"})

_BROAD = {"Exception", "BaseException"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_style_violations(name: str, source: str) -> list[str]:
    """Return what in `source` breaks a rule, a sentence each.

    Args:
        name: path of the file below the repository's root, with forward slashes.
        source: text of the file.
    """
    tree = ast.parse(source, filename=name)
    lines = source.splitlines()
    found = [*_check_file(name, lines, tree), *_check_docstrings(tree.body, "")]
    for node in ast.walk(tree):
        found += _check_node(name, node, lines)
    return [f"{name}: {sentence}" for sentence in found]


def find_product_files(root: Path, packages: tuple[str, ...]) -> list[Path]:
    """Return every Python file of `packages` below `root`."""
    return [path for package in packages for path in sorted((root / package).rglob("*.py"))]


def _check_file(name: str, lines: list[str], tree: ast.Module) -> Iterator[str]:
    if len(lines) > MAX_FILE_LINES and name not in LONG_FILES:
        yield f"{len(lines)} lines, expected at most {MAX_FILE_LINES}."
    if ast.get_docstring(tree) is None:
        yield "the module has no docstring."


def _check_node(name: str, node: ast.AST, lines: list[str]) -> Iterator[str]:
    if isinstance(node, _Function):
        size = _count_code_lines(node, lines)
        if size > MAX_FUNCTION_LINES and f"{name}:{node.name}" not in LONG_FUNCTIONS:
            yield f"line {node.lineno}: {node.name} has {size} lines of code, expected at most {MAX_FUNCTION_LINES}."
    elif isinstance(node, ast.Assert):
        yield f"line {node.lineno}: assert; raise an error that says what was expected and found."
    elif isinstance(node, ast.Call) and _last_name(node.func) == "print" and isinstance(node.func, ast.Name):
        yield f"line {node.lineno}: print; log, or write through the command's console."
    elif _is_broad(node) and name not in BROAD_EXCEPT_FILES:
        yield f"line {getattr(node, 'lineno', 0)}: broad except; name the errors that can happen."


def _check_docstrings(body: list[ast.stmt], owner: str) -> Iterator[str]:
    for node in body:
        if not isinstance(node, (_Function, ast.ClassDef)) or node.name.startswith("_") or _inherits_docstring(node):
            continue
        if ast.get_docstring(node) is None:
            yield f"line {node.lineno}: {owner}{node.name} is public and has no docstring."
        if isinstance(node, ast.ClassDef):
            yield from _check_docstrings(node.body, f"{owner}{node.name}.")


def _inherits_docstring(node: _Function | ast.ClassDef) -> bool:
    """Return whether the text stands elsewhere: on the overridden method, the property, or the implementation."""
    return any(_last_name(decorator) in {"override", "overload", "setter"} for decorator in node.decorator_list)


def _count_code_lines(node: _Function, lines: list[str]) -> int:
    """Return the lines from `def` to the end that are neither blank, nor comment, nor docstring."""
    numbers = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    if ast.get_docstring(node) is not None:
        text = node.body[0]
        numbers -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    stripped = [lines[number - 1].strip() for number in numbers]
    return sum(1 for line in stripped if line and not line.startswith("#"))


def _is_broad(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or _names_broad_error(node.type)
    if isinstance(node, ast.Call) and _last_name(node.func) == "suppress":
        return any(map(_names_broad_error, node.args))
    return False


def _names_broad_error(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return any(map(_names_broad_error, node.elts))
    return _last_name(node) in _BROAD


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
