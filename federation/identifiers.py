"""Names that become file names and log entries: runs and hospitals."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

IDENTIFIER_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
IDENTIFIER_RULE = "1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit"


def is_identifier(name: str) -> bool:
    """Return whether `name` follows `IDENTIFIER_RULE`, and so is safe as a file name."""
    return re.fullmatch(IDENTIFIER_PATTERN, name) is not None


def _require_identifier(name: str) -> str:
    if not is_identifier(name):
        raise ValueError(f"Expected {IDENTIFIER_RULE}, found {name!r}.")
    return name


Identifier = Annotated[str, AfterValidator(_require_identifier)]
"""A field of a table that follows `IDENTIFIER_RULE`."""
