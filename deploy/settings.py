"""From the command line to a configuration: the app's own settings, a file, then `--set`, the later winning."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from federation.config import Configuration, flatten, parse_configuration
from federation.errors import ConfigurationError


def load_configuration(app: Path, file: Path | None, assignments: Sequence[str], **overrides: Any) -> Configuration:
    """Return the resolved configuration.

    Args:
        app: folder whose `pyproject.toml` may hold `[tool.flwr.app.config]`; what it does not name has its default.
        file: a TOML file with tables and keys, or None.
        assignments: texts `table.key=value`, the value a TOML scalar; a bare word counts as a string.
        **overrides: dotted keys with values that win over everything, None meaning "not given".

    Raises:
        ConfigurationError: a file cannot be read, an assignment has no `=`, or a key or value is refused.
    """
    flat: dict[str, Any] = dict(flatten(Configuration()))
    flat.update(_app_settings(app))
    if file is not None:
        flat.update(_flatten(_read(file)))
    flat.update(_assignment(text) for text in assignments)
    flat.update({key: value for key, value in overrides.items() if value is not None})
    configuration = parse_configuration(flat)
    root, cache = str(Path(configuration.run.root).absolute()), configuration.masking.cache
    return configuration.model_copy(
        update={
            "run": configuration.run.model_copy(update={"root": root}),
            "masking": configuration.masking.model_copy(update={"cache": cache and str(Path(cache).absolute())}),
        }
    )


def _app_settings(app: Path) -> dict[str, Any]:
    path = app / "pyproject.toml"
    if not path.is_file():
        return {}
    return _flatten(_read(path).get("tool", {}).get("flwr", {}).get("app", {}).get("config", {}))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as TOML: {error}") from None


def _flatten(tables: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for table, content in tables.items():
        if isinstance(content, dict):
            flat.update({f"{table}.{key}": value for key, value in content.items()})
        else:
            flat[table] = content
    return flat


def _assignment(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigurationError(f"Expected key=value, found {text!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value
