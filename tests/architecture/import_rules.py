"""Which module may import which: the rules as three tables, and the code that finds what breaks them.

The source is read as a syntax tree and never imported, so an import inside a function or under TYPE_CHECKING counts
like any other. `test_imports.py` applies the rules to this repository and to small trees that break them on purpose.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

# Package -> what of ours it may import besides itself. "x" stands for the module x and everything below it.
LAYERS: dict[str, tuple[str, ...]] = {
    "federation": (),
    "aegis_cache": ("federation",),
    "client_app": ("federation", "aegis_cache.store"),
    "server_app": ("federation",),
    "attacks": ("federation", "aegis_cache", "client_app", "server_app"),
    "deploy": ("federation", "aegis_cache", "client_app", "server_app", "attacks"),
}

# Library -> the only modules of ours that may import it (shell patterns; "x*" takes in x itself and all below it).
DOORS: dict[str, tuple[str, ...]] = {
    # Opacus as it comes is the baseline of a measurement; that module stays where nothing ships to a hospital.
    "opacus": ("client_app.dp_sgd*", "deploy.experiments.stock_opacus"),
    "diffusers": ("aegis_cache.generation*",),
    "dp_accounting": ("federation.accounting*",),
    "pydicom": ("federation.datasets.dicom*",),
    "medmnist": ("federation.datasets.medmnist*",),
    "torchvision": ("federation.datasets.*",),
    "matplotlib": ("server_app.report*", "deploy.*"),
    "jinja2": ("server_app.report*", "deploy.*"),
    "ray": (),
    "flwr": (
        "federation.records*",
        "client_app.main",
        "client_app.boundary",
        "client_app.site",
        "server_app.main",
        "server_app.grid_link*",
        "server_app.simulation.*",
        "deploy.*",
    ),
}

# Module -> what it must not reach, however many imports lie between them.
OUT_OF_REACH: dict[str, tuple[str, ...]] = {
    "aegis_cache.store": ("aegis_cache.generation",),
    "client_app": ("aegis_cache.generation",),
    "server_app.main": ("server_app.simulation",),  # the app bundle leaves the simulation out
}

# Calls that import the module they are given as text.
_IMPORTING_CALLS = frozenset({"import_module", "__import__", "run_module", "resolve_name"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """One module importing another.

    Attributes:
        importer: dotted name of the importing module, which is ours.
        imported: dotted name of the imported module; None where only the running program knows.
        line: line of the import.
    """

    importer: str
    imported: str | None
    line: int


def find_modules(root: Path) -> dict[str, Path]:
    """Return every module of our packages below `root` by its dotted name."""
    paths = (path for package in LAYERS for path in sorted((root / package).rglob("*.py")))
    return {_dotted(path.relative_to(root)): path for path in paths}


def find_imports(modules: dict[str, Path]) -> list[Import]:
    """Return every import in `modules`, wherever in the file it stands."""
    return [
        Import(importer=name, imported=imported, line=line)
        for name, path in modules.items()
        for imported, line in _imported_names(name, path, modules)
    ]


def layer_violations(imports: Iterable[Import]) -> list[str]:
    """Return the imports that `LAYERS` forbids."""
    found = []
    for item in imports:
        package, target = _package(item.importer), _package(item.imported or "")
        if target not in LAYERS or target == package:
            continue
        if not any(_is_within(item.imported or "", allowed) for allowed in LAYERS[package]):
            found.append(f"{_where(item)}: {package} may import of ours only {LAYERS[package] or 'itself'}.")
    return found


def door_violations(imports: Iterable[Import]) -> list[str]:
    """Return the imports of libraries in `DOORS` by modules that are not their door."""
    found = []
    for item in imports:
        library = _package(item.imported or "")
        if library in DOORS and not any(fnmatchcase(item.importer, door) for door in DOORS[library]):
            found.append(f"{_where(item)}: {library} belongs to {DOORS[library] or 'no module'} only.")
    return found


def unreadable_imports(imports: Iterable[Import]) -> list[str]:
    """Return the dynamic imports whose target is not literal text, because no rule can be checked on them."""
    return [f"{_where(item)}: write the name of the module as literal text." for item in imports if not item.imported]


def cycle_violations(imports: Iterable[Import]) -> list[str]:
    """Return one cycle of imports between our modules, if there is any; lazy imports count."""
    try:
        graphlib.TopologicalSorter(_graph(imports)).prepare()
    except graphlib.CycleError as error:
        return [f"Import cycle: {' -> '.join(reversed(error.args[1]))}."]
    return []


def reach_violations(imports: Iterable[Import]) -> list[str]:
    """Return the modules that arrive, through other modules, at what `OUT_OF_REACH` keeps from them."""
    graph = _graph(imports)
    found = []
    for start, forbidden in OUT_OF_REACH.items():
        reached = _reachable(graph, [module for module in graph if _is_within(module, start)])
        hits = sorted(module for module in reached for taboo in forbidden if _is_within(module, taboo))
        found += [f"{start} reaches {module} through its imports." for module in hits]
    return found


def violations(root: Path) -> list[str]:
    """Return everything below `root` that breaks a rule, a sentence each."""
    imports = find_imports(find_modules(root))
    rules = (layer_violations, door_violations, unreadable_imports, cycle_violations, reach_violations)
    return [sentence for rule in rules for sentence in rule(imports)]


def _graph(imports: Iterable[Import]) -> dict[str, set[str]]:
    """Return who imports whom among our modules.

    Importing `a.b` also runs `a/__init__.py`; that edge is left out where the importer lies in `a` itself, because
    then `a` is loaded already and a package that re-exports its parts is no cycle.
    """
    graph: dict[str, set[str]] = {}
    for item in imports:
        if item.imported is None or _package(item.imported) not in LAYERS:
            continue
        loaded_already = {item.importer, *_parents(item.importer)}
        graph.setdefault(item.importer, set()).update({item.imported} | (set(_parents(item.imported)) - loaded_already))
    return graph


def _reachable(graph: dict[str, set[str]], starts: Iterable[str]) -> set[str]:
    reached: set[str] = set()
    waiting = list(starts)
    while waiting:
        for module in graph.get(waiting.pop(), set()) - reached:
            reached.add(module)
            waiting.append(module)
    return reached


def _imported_names(module: str, path: Path, modules: Container[str]) -> Iterator[tuple[str | None, int]]:
    is_package = path.name == "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    calls = _IMPORTING_CALLS | _renamed_calls(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node.module or "", node.level, module, is_package=is_package)
            names = (f"{base}.{alias.name}" for alias in node.names)
            yield from ((name if name in modules else base, node.lineno) for name in names)
        elif isinstance(node, ast.Call) and _called_name(node) in calls:
            yield _literal_target(node, module, is_package=is_package), node.lineno


def _renamed_calls(tree: ast.Module) -> set[str]:
    lists = [node.names for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname for names in lists for alias in names if alias.asname and alias.name in _IMPORTING_CALLS}


def _literal_target(call: ast.Call, module: str, *, is_package: bool) -> str | None:
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in {"name", "mod_name"})]
    if not given or not isinstance(given[0], ast.Constant) or not isinstance(given[0].value, str):
        return None
    target = given[0].value.partition(":")[0]
    level = len(target) - len(target.lstrip("."))
    return _absolute(target.lstrip("."), level, module, is_package=is_package)


def _called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _absolute(target: str, level: int, module: str, *, is_package: bool) -> str:
    if level == 0:
        return target
    parts = module.split(".")
    kept = parts[: len(parts) - level + (1 if is_package else 0)]
    return ".".join([*kept, target] if target else kept)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def _is_within(module: str, ancestor: str) -> bool:
    return module == ancestor or module.startswith(f"{ancestor}.")


def _where(item: Import) -> str:
    return f"{item.importer}, line {item.line}, imports {item.imported or 'a computed name'}"
