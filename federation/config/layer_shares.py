"""`privacy.layer-shares` as a value: ordered groups of layer patterns, each with its exact share of the budget.

Both sides read it: the server before it sends anything, the hospital when it divides an update.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from federation.errors import ConfigurationError

_KEY = "privacy.layer-shares"
_SHARE = re.compile(r"\d{1,9}(\.\d{1,12})?|\d{1,9}/\d{1,9}")
_EXAMPLE = "write for example 'output.*=0.8, *=0.2'"


@dataclass(frozen=True, slots=True)
class LayerShare:
    """One group of layers.

    Attributes:
        patterns: shell patterns of parameter names; a name belongs to the first group with a pattern that fits.
        share: of the budget, above 0; the shares of all groups sum to exactly 1.
    """

    patterns: tuple[str, ...]
    share: Fraction


def parse_layer_shares(text: str) -> tuple[LayerShare, ...]:
    """Return the groups that `text` describes, in order; for an empty text one group of everything.

    Args:
        text: `pattern=share` separated by commas; several patterns of one group are separated by `|`. A share is a
            decimal number or a fraction such as `1/3`, taken exactly as it is written.

    Raises:
        ConfigurationError: an entry is not of that form, a share is 0, or the shares do not sum to 1.
    """
    if not text.strip():
        return (LayerShare(("*",), Fraction(1)),)
    groups = tuple(_parse_entry(entry.strip()) for entry in text.split(","))
    total = sum(group.share for group in groups)
    if total != 1:
        raise ConfigurationError(f"Expected shares that sum to 1 in {_KEY}={text!r}, found {_in_words(total)}.")
    return groups


def _parse_entry(entry: str) -> LayerShare:
    left, _, right = entry.rpartition("=")
    patterns = tuple(pattern.strip() for pattern in left.split("|"))
    if not all(patterns):
        raise ConfigurationError(f"Expected pattern=share in {_KEY}, found {entry!r}: {_EXAMPLE}.")
    return LayerShare(patterns, _parse_share(right.strip(), entry))


def _parse_share(text: str, entry: str) -> Fraction:
    written = _SHARE.fullmatch(text) and not re.search(r"/0+$", text)
    share = Fraction(text) if written else Fraction(0)
    if not 0 < share <= 1:
        raise ConfigurationError(f"Expected a share above 0 and at most 1 in {_KEY}, found {entry!r}: {_EXAMPLE}.")
    return share


def _in_words(total: Fraction | int) -> str:
    return f"{float(total):.12g}"
