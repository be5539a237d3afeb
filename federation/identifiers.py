"""Names that become file names and log entries: runs and hospitals."""

from __future__ import annotations

import re

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
IDENTIFIER_RULE = "1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit"


def is_identifier(name: str) -> bool:
    """Return whether `name` follows `IDENTIFIER_RULE`, and so is safe as a file name."""
    return _IDENTIFIER.fullmatch(name) is not None
