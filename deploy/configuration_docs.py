"""Writes `docs/configuration.md` from the configuration models, so that the page cannot drift from what is checked.

`python -m deploy.configuration_docs` rewrites the page; a test compares it with the models. Read next:
`federation.config.tables`, where every sentence of the page's tables stands.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from federation.config import describe_keys

CONFIGURATION_PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

_INTRODUCTION = """# Configuration

<!-- Generated from federation/config by `python -m deploy.configuration_docs`. Do not edit. -->

A run is described by the keys on this page. Each is written `table.key`, in lower case with hyphens.

| Where | How |
|---|---|
| `flwr run` | `flwr run . --run-config "training.batch-size=32 model.name='mlp'"`, or `--run-config run.toml` |
| `aegis simulate` | `aegis simulate --set training.batch-size=32 --set model.name=mlp` |
| the app itself | `[tool.flwr.app.config]` in `pyproject.toml` |

What the command line sets wins; then come the values in `[tool.flwr.app.config]`; a key that stands nowhere has the
default below. The app's values are these defaults, except that they name the run and give each simulated hospital a
scanner of its own. A deployed hospital's own settings (`node-config`) are not on this page; they win wherever a
description says so.

A key that does not exist, a value of another type and a value out of bounds are errors. They are reported together,
before anything is trained, and an unknown key is answered with the nearest known one. A whole number is accepted where
a number is expected; nothing else is converted. TOML has no null, so an empty text or a zero means "not set" where a
description says so.
"""

_TABLE_HEAD = """| Key | Type | Bounds | Default | What it does |
|---|---|---|---|---|
"""

_ESCAPED_BAR = r"\|"

_TYPE_NAMES: dict[object, str] = {str: "text", int: "whole number", float: "number", bool: "`true` or `false`"}


def render_configuration() -> str:
    """Return the text of `docs/configuration.md`, one table per table of the configuration."""
    sections = [_render_table(name, model) for name, model in describe_keys()]
    return "\n".join([_INTRODUCTION, *sections])


def write_configuration_page(page: Path = CONFIGURATION_PAGE) -> None:
    """Write the text of `render_configuration` to `page`."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render_configuration(), encoding="utf-8")


def _render_table(name: str, model: type[BaseModel]) -> str:
    rows = "".join(_render_row(name, field) for field in model.model_fields.values())
    return f"## {name}\n\n{_first_line(model)}\n\n{_TABLE_HEAD}{rows}"


def _render_row(table: str, field: FieldInfo) -> str:
    key, default = f"`{table}.{field.alias}`", f"`{json.dumps(field.default, ensure_ascii=False)}`"
    cells = [key, _describe_type(field), _describe_bounds(field), default, field.description or ""]
    return f"| {' | '.join(cell.replace('|', _ESCAPED_BAR) for cell in cells)} |\n"


def _describe_type(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    return _TYPE_NAMES[field.annotation]


def _describe_bounds(field: FieldInfo) -> str:
    return ", ".join(text for text in map(_describe_bound, field.metadata) if text)


def _describe_bound(constraint: object) -> str:
    match constraint:
        case annotated_types.Gt(gt=bound):
            return f"> {bound}"
        case annotated_types.Ge(ge=bound):
            return f"≥ {bound}"
        case annotated_types.Lt(lt=bound):
            return f"< {bound}"
        case annotated_types.Le(le=bound):
            return f"≤ {bound}"
        case _:
            return ""


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    write_configuration_page()
