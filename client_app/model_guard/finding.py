"""What a check found: words for the hospital's log, which never leave it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason to take a model for a crafted one.

    Attributes:
        check: which check found it.
        tensor: the parameter it was found in.
        found: what was found.
        expected: what models that were trained show instead.
    """

    check: str
    tensor: str
    found: str
    expected: str

    def __str__(self) -> str:
        """Return the finding as one sentence."""
        return f"{self.check} in {self.tensor}: expected {self.expected}, found {self.found}."
