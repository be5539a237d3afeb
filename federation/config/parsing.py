"""From Flower's flat, untyped run configuration to `Configuration`, with an error a person can act on.

Flower 1.42 checks neither types nor bounds and hands over `{"training.batch-size": 64}`; everything is checked here,
once, and all problems are reported together.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from federation.config.tables import Configuration
from federation.errors import ConfigurationError


def parse_configuration(flat: Mapping[str, Any]) -> Configuration:
    """Return the configuration described by `flat`.

    Args:
        flat: dotted kebab-case keys and TOML scalars, as in `context.run_config`.

    Raises:
        ConfigurationError: keys are unknown (the nearest known one is named), or values have the wrong type or bound;
            all problems stand in the one message, a line each.
    """
    known = flatten(Configuration())
    problems = [_explain_unknown(key, known) for key in flat if key not in known]
    configuration = None
    try:
        configuration = Configuration.model_validate(nest({key: flat[key] for key in flat if key in known}))
    except ValidationError as error:
        problems += [_explain_invalid(item) for item in error.errors()]
    if problems or configuration is None:
        raise ConfigurationError("\n".join(problems))
    return configuration


def flatten(configuration: Configuration) -> dict[str, str | int | float | bool]:
    """Return `configuration` as Flower carries it: dotted kebab-case keys and scalars."""
    tables: Mapping[str, Mapping[str, Any]] = configuration.model_dump(by_alias=True)
    return {f"{table}.{key}": value for table, content in tables.items() for key, value in content.items()}


def describe_keys() -> list[tuple[str, type[BaseModel]]]:
    """Return every table name with its model, in the order in which the documentation lists them."""
    fields = Configuration.model_fields
    return [(name, field.annotation) for name, field in fields.items() if isinstance(field.annotation, type)]


def nest(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return dotted keys as tables, the opposite of `flatten`."""
    nested: dict[str, dict[str, Any]] = {}
    for dotted, value in flat.items():
        table, key = dotted.split(".", maxsplit=1)
        nested.setdefault(table, {})[key] = value
    return nested


def _explain_unknown(key: str, known: Collection[str]) -> str:
    return f"Unknown key {key!r}: the nearest known key is {_nearest(key, known)!r}."


def _nearest(key: str, known: Collection[str]) -> str:
    if "." in key:
        return difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
    by_last_part = {name.rpartition(".")[2]: name for name in known}
    return by_last_part[difflib.get_close_matches(key, by_last_part, n=1, cutoff=0.0)[0]]


def _explain_invalid(item: ErrorDetails) -> str:
    message = item["msg"].removeprefix("Value error, ").rstrip(".") + "."
    key = ".".join(str(part) for part in item["loc"])
    if not key:
        return message
    # A check across the fields of one table has the whole table as its input, which would bury the message.
    found = "" if isinstance(item["input"], Mapping) else f"={item['input']!r}"
    return f"{key}{found}: {message}"
