"""Names of files that look like persons, and many that do not."""

from __future__ import annotations

import hashlib
import random
import uuid

import pytest

from deploy.doctor.file_names import looks_like_a_person


@pytest.mark.parametrize(
    "name",
    [
        "Doe, John.png",
        "Doe,John_2.png",
        "Müller, Änne.jpg",
        "DOE^JOHN.dcm",
        "1962-03-14.png",
        "14.03.1962.png",
        "3-14-1962.png",
        "scan_19620314.png",
        "19620314",
        "4711815_1.png",
        "patient-12345678.png",
        "MRN-0012345.png",
        "mrn0012345",
        "dob_0314",
    ],
)
def test_names_dates_and_record_numbers_are_found(name: str) -> None:
    assert looks_like_a_person(name)


@pytest.mark.parametrize(
    "name",
    [
        "patient-0001.png",
        "patient00001",
        "p10000032",
        "00000013_005.png",
        "ISIC_0024306.jpg",
        "000123.png",
        "image_42.png",
        "a19620314b.png",
        "1900.png",
        "pneumoniamnist.npz",
        "dermamnist_224.npz",
        "NORMAL2-IM-1427-0001.jpeg",
        "person100_bacteria_475.jpeg",
        "view1_frontal.jpg",
        "left, upper.png",
        "1.2.840.113619.2.55.3.604688119.929.1234567890.123.dcm",
        "123456789012345678901234567890",
    ],
)
def test_pseudonyms_hashes_and_known_data_sets_raise_no_alarm(name: str) -> None:
    assert not looks_like_a_person(name)


def test_hashes_and_uuids_raise_no_alarm() -> None:
    draw = random.Random(0)
    hashes = [hashlib.md5(str(number).encode()).hexdigest() for number in range(2000)]
    ids = [str(uuid.UUID(int=draw.getrandbits(128))) for _ in range(2000)]

    assert [name for name in (*hashes, *ids) if looks_like_a_person(f"{name}.png")] == []
