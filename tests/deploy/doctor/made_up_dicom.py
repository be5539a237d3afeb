"""DICOM files with a header and no pixels, byte by byte."""

from __future__ import annotations

import struct

EXPLICIT = "1.2.840.10008.1.2.1"
IMPLICIT = "1.2.840.10008.1.2"
_LONG = ("SQ", "OB", "UN")


def element(
    group: int, number: int, vr: str, value: bytes, *, implicit: bool = False, undefined: bool = False
) -> bytes:
    """Return one element, its value padded to an even length."""
    padded = value + b" " * (len(value) % 2)
    length = 0xFFFFFFFF if undefined else len(padded)
    head = struct.pack("<HH", group, number)
    if implicit:
        return head + struct.pack("<I", length) + padded
    if vr in _LONG:
        return head + vr.encode() + b"\0\0" + struct.pack("<I", length) + padded
    return head + vr.encode() + struct.pack("<H", length) + padded


def make_dicom(
    *,
    name: str = "",
    patient_id: str = "",
    birth_date: str = "",
    removed: str = "",
    syntax: str = EXPLICIT,
    before: bytes = b"",
) -> bytes:
    """Return a file; `before` are elements between the file meta information and the patient."""
    implicit = syntax == IMPLICIT
    meta = element(0x0002, 0x0001, "OB", b"\0\1") + element(0x0002, 0x0010, "UI", syntax.encode())
    patient = [
        element(0x0008, 0x0060, "CS", b"CR", implicit=implicit),
        before,
        element(0x0010, 0x0010, "PN", name.encode(), implicit=implicit),
        element(0x0010, 0x0020, "LO", patient_id.encode(), implicit=implicit),
        element(0x0010, 0x0030, "DA", birth_date.encode(), implicit=implicit),
        element(0x0012, 0x0062, "CS", removed.encode(), implicit=implicit) if removed else b"",
        element(0x0028, 0x0010, "US", b"\x08\x00", implicit=implicit),
    ]
    return bytes(128) + b"DICM" + meta + b"".join(patient)
