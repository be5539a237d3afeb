"""Libraries that an installation may leave out, and the extra that brings each."""

from __future__ import annotations

import importlib.util

from federation.errors import ConfigurationError

_EXTRAS = {"scipy": "attacks", "skimage": "attacks", "matplotlib": "report"}


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
