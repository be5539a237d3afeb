"""What the subcommands share: names that must be known, the extras they need, and how they end."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Collection
from pathlib import Path

from federation.errors import ConfigurationError

_EXTRAS = {"scipy": "attacks", "skimage": "attacks", "matplotlib": "report"}


def require_known(option: str, value: str, known: Collection[str]) -> str:
    """Return `value`, which must be one of `known`.

    Raises:
        ConfigurationError: it is not; the nearest one is named.
    """
    if value not in known:
        nearest = difflib.get_close_matches(value, known, n=1, cutoff=0.0)[0]
        raise ConfigurationError(f"Expected {option} of {', '.join(known)}, found {value!r}: nearest is {nearest!r}.")
    return value


def require_extras(*libraries: str) -> None:
    """Check that `libraries` are installed, which a hospital's container leaves out.

    Raises:
        ConfigurationError: one is not.
    """
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            raise ConfigurationError(
                f'Expected {library} to be installed, found it is not: pip install "aegis-fl[{_EXTRAS[library]}]".'
            )


def as_path(given: str | Path | None) -> Path | None:
    """Return what typer's context holds for an option that is a path."""
    return None if given is None else Path(given)
