"""Whom a DICOM file is about, read from headers that are built byte by byte."""

from __future__ import annotations

import pytest

from deploy.doctor.dicom_header import LOOKED_AT_BYTES, Identity, read_identity
from tests.deploy.doctor.made_up_dicom import EXPLICIT, IMPLICIT, element, make_dicom

JPEG_2000 = "1.2.840.10008.1.2.4.90"
DEFLATED = "1.2.840.10008.1.2.1.99"
BIG_ENDIAN = "1.2.840.10008.1.2.2"
ITEM = b"\xfe\xff\x00\xe0"
ITEM_END = b"\xfe\xff\x0d\xe0\0\0\0\0"
SEQUENCE_END = b"\xfe\xff\xdd\xe0\0\0\0\0"
UNDEFINED = b"\xff\xff\xff\xff"


@pytest.mark.parametrize("syntax", [EXPLICIT, IMPLICIT, JPEG_2000])
@pytest.mark.parametrize("field", ["name", "patient_id", "birth_date"])
def test_name_id_and_date_of_birth_are_found_one_by_one(syntax: str, field: str) -> None:
    content = make_dicom(syntax=syntax, **{field: "19620314"})  # type: ignore[arg-type]

    assert read_identity(content) is Identity.PRESENT


@pytest.mark.parametrize("syntax", [EXPLICIT, IMPLICIT, JPEG_2000])
def test_empty_fields_say_nothing(syntax: str) -> None:
    assert read_identity(make_dicom(syntax=syntax)) is Identity.REMOVED
    assert read_identity(make_dicom(syntax=syntax, name="  ")) is Identity.REMOVED


def test_pseudonyms_count_only_where_identity_was_not_removed() -> None:
    assert read_identity(make_dicom(name="P1", removed="YES")) is Identity.REMOVED
    assert read_identity(make_dicom(name="P1", removed="NO")) is Identity.PRESENT
    assert read_identity(make_dicom(birth_date="1962", removed="YES")) is Identity.PRESENT


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("undefined", [False, True])
def test_nested_sequences_before_the_patient_are_passed_over(implicit: bool, undefined: bool) -> None:
    inner = element(0x0010, 0x0010, "PN", b"DOE^JOHN", implicit=implicit)
    length = UNDEFINED if undefined else len(inner).to_bytes(4, "little")
    item = ITEM + length + inner + (ITEM_END if undefined else b"")
    nested = element(0x0008, 0x1199, "SQ", item + (SEQUENCE_END if undefined else b""), implicit=implicit,
                     undefined=undefined)  # fmt: skip
    outer_item = ITEM + UNDEFINED + nested + ITEM_END
    outer = element(0x0008, 0x1115, "SQ", outer_item + SEQUENCE_END, implicit=implicit, undefined=True)
    syntax = IMPLICIT if implicit else EXPLICIT

    assert read_identity(make_dicom(syntax=syntax, before=outer)) is Identity.REMOVED
    assert read_identity(make_dicom(syntax=syntax, before=outer, patient_id="4711")) is Identity.PRESENT


@pytest.mark.parametrize("syntax", [DEFLATED, BIG_ENDIAN])
def test_what_cannot_be_read_is_not_called_clean(syntax: str) -> None:
    assert read_identity(make_dicom(syntax=syntax)) is Identity.UNKNOWN


def test_header_that_ends_before_the_patient_is_not_called_clean() -> None:
    long = element(0x0008, 0x1030, "UN", b"x" * LOOKED_AT_BYTES)

    assert read_identity(make_dicom(before=long)[:LOOKED_AT_BYTES]) is Identity.UNKNOWN


def test_name_before_the_cut_is_found() -> None:
    content = make_dicom(name="DOE^JOHN", birth_date="1962")
    cut = content[: content.index(b"DOE^JOHN") + 9]

    assert read_identity(cut) is Identity.PRESENT


@pytest.mark.parametrize("content", [b"", b"DICM", b"\x89PNG" + bytes(200), bytes(128)])
def test_other_files_are_no_dicom(content: bytes) -> None:
    assert read_identity(content) is Identity.NO_DICOM
