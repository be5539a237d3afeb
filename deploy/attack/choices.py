"""What the subcommands share: names that must be known, and options that are paths."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path

from federation.errors import ConfigurationError


def require_known(option: str, value: str, known: Collection[str]) -> str:
    """Return `value`, which must be one of `known`.

    Raises:
        ConfigurationError: it is not; the nearest one is named.
    """
    if value not in known:
        nearest = difflib.get_close_matches(value, known, n=1, cutoff=0.0)[0]
        raise ConfigurationError(f"Expected {option} of {', '.join(known)}, found {value!r}: nearest is {nearest!r}.")
    return value


def as_path(given: str | Path | None) -> Path | None:
    """Return what typer's context holds for an option that is a path."""
    return None if given is None else Path(given)
