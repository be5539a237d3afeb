"""Finds what looks like a person in the name of a file or folder.

Each pattern asks for a shape that hashes, running numbers and pseudonyms do not have; what has none of these shapes may
still be a name. Looked at is what remains after UUIDs and DICOM UIDs are taken out:

- a surname and a given name with a comma or a caret between them: `Doe, John`, `DOE^JOHN`; both begin with a capital;
- a date from 1900 on, as `1962-03-14`, `14.03.1962` or `19620314`, between characters that are no letters or digits;
- seven to twelve digits that do not begin with zero, likewise between others, as record numbers are;
- digits behind `mrn`, `ssn` or `dob`.
"""

from __future__ import annotations

import re
from datetime import date

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_UID = re.compile(r"\d+(?:\.\d+){4,}")
_PAIR = re.compile(r"([^\W\d_]{2,})(?:,\s?|\^)([^\W\d_]{2,})")
_YEAR_FIRST = re.compile(r"(?<![^\W_])((?:19|20)\d\d)([-._]?)(\d\d)\2(\d\d)(?![^\W_])")
_YEAR_LAST = re.compile(r"(?<![^\W_])(\d\d?)([-._])(\d\d?)\2((?:19|20)\d\d)(?![^\W_])")
_NUMBER = re.compile(r"(?<![^\W_])[1-9]\d{6,11}(?![^\W_])")
_MARKED = re.compile(r"(?<![^\W_])(?:mrn|ssn|dob)[-_ .#]?\d{4,}", re.IGNORECASE)


def looks_like_a_person(name: str) -> bool:
    """Return whether `name` has a name, a date, or a record number in it."""
    rest = _UID.sub(" ", _UUID.sub(" ", name))
    return _has_pair(rest) or _has_date(rest) or bool(_NUMBER.search(rest) or _MARKED.search(rest))


def _has_pair(text: str) -> bool:
    return any(first[0].isupper() and second[0].isupper() for first, second in _PAIR.findall(text))


def _has_date(text: str) -> bool:
    first = (_is_date(int(year), int(month), int(day)) for year, _, month, day in _YEAR_FIRST.findall(text))
    last = (
        _is_date(int(year), int(month), int(day)) or _is_date(int(year), int(day), int(month))
        for day, _, month, year in _YEAR_LAST.findall(text)
    )
    return any(first) or any(last)


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True
