"""Reads who a DICOM file is about, from its first 64 kB and without a DICOM library.

Explicit and implicit VR, little-endian, and the header of every compressed syntax, which is explicit; PS3.5 section 7.
Files without the 128-byte preamble, deflated and big-endian ones are not understood, and said to be so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LOOKED_AT_BYTES = 65536

_PREAMBLE = 128
_MAGIC = b"DICM"
_SYNTAX = (0x0002, 0x0010)
_IMPLICIT = "1.2.840.10008.1.2"
_NOT_READ = ("1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.2")  # deflated; big-endian
_NAMES = ((0x0010, 0x0010), (0x0010, 0x0020))  # PatientName, PatientID
_BIRTH_DATE = (0x0010, 0x0030)
_REMOVED = (0x0012, 0x0062)  # PatientIdentityRemoved
_WANTED = frozenset({*_NAMES, _BIRTH_DATE, _REMOVED})
_LAST_GROUP = 0x0012
_LONG_VRS = frozenset({b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"})
_UNDEFINED = 0xFFFFFFFF
_ITEM, _ITEM_END, _SEQUENCE_END = (0xFFFE, 0xE000), (0xFFFE, 0xE00D), (0xFFFE, 0xE0DD)

Tag = tuple[int, int]


class Identity(Enum):
    """What a file says about whom it shows."""

    NO_DICOM = "no-dicom"
    REMOVED = "removed"
    PRESENT = "present"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Reader:
    """A place in a header."""

    content: bytes
    position: int
    implicit: bool = False

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes.

        Raises:
            EOFError: there are fewer.
        """
        piece = self.content[self.position : self.position + size]
        if len(piece) < size:
            raise EOFError
        self.position += size
        return piece

    def number(self, size: int) -> int:
        """Return the next `size` bytes as a number."""
        return int.from_bytes(self.take(size), "little")

    def head(self) -> tuple[Tag, int]:
        """Return tag and length of the element that begins here."""
        tag = (self.number(2), self.number(2))
        if self.implicit or tag[0] == _ITEM[0]:
            return tag, self.number(4)
        if self.take(2) in _LONG_VRS:
            self.take(2)
            return tag, self.number(4)
        return tag, self.number(2)

    def next_group(self) -> int:
        """Return the group of the element that begins here, without going on; -1 at the end."""
        piece = self.content[self.position : self.position + 2]
        return int.from_bytes(piece, "little") if len(piece) == 2 else -1

    def element(self) -> tuple[Tag, bytes]:
        """Return tag and value of the element that begins here; a sequence of undefined length has no value."""
        tag, length = self.head()
        if length != _UNDEFINED:
            return tag, self.take(length)
        self.skip_sequence()
        return tag, b""

    def skip_sequence(self) -> None:
        """Go behind a sequence of undefined length."""
        while True:
            tag, length = self.head()
            if tag == _SEQUENCE_END:
                return
            if length == _UNDEFINED:
                self._skip_item()
            else:
                self.take(length)

    def _skip_item(self) -> None:
        while True:
            tag, length = self.head()
            if tag == _ITEM_END:
                return
            if length == _UNDEFINED:
                self.skip_sequence()
            else:
                self.take(length)


def read_identity(content: bytes) -> Identity:
    """Return what a file says about whom it shows.

    A name or an id counts unless the file says that identity was removed: then they are pseudonyms. A date of birth
    always counts.

    Args:
        content: the first `LOOKED_AT_BYTES` of the file.
    """
    if content[_PREAMBLE : _PREAMBLE + len(_MAGIC)] != _MAGIC:
        return Identity.NO_DICOM
    found: dict[Tag, str] = {}
    whole = _read_elements(_Reader(content, _PREAMBLE + len(_MAGIC)), found)
    removed = found.get(_REMOVED, "").upper() == "YES"
    named = not removed and any(found.get(tag) for tag in _NAMES)
    if named or found.get(_BIRTH_DATE):
        return Identity.PRESENT
    return Identity.REMOVED if whole else Identity.UNKNOWN


def _read_elements(reader: _Reader, found: dict[Tag, str]) -> bool:
    """Put the values up to the patient's groups into `found`; return whether all of these could be read."""
    try:
        while reader.next_group() == _SYNTAX[0]:
            tag, value = reader.element()
            found[tag] = _text(value)
        syntax = found.get(_SYNTAX, "")
        reader.implicit = syntax == _IMPLICIT
        while syntax not in _NOT_READ and 0 <= reader.next_group() <= _LAST_GROUP:
            tag, value = reader.element()
            if tag in _WANTED:
                found[tag] = _text(value)
    except EOFError:
        return False
    return syntax not in _NOT_READ


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip(" \0")
