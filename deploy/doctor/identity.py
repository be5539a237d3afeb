"""Whether the images say whom they show: in DICOM headers, in file names, in texts beside the pixels.

What is found is told in numbers and places, never by name: somebody may send this output on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, UnidentifiedImageError
from PIL.ExifTags import TAGS

from deploy.doctor.checks import Check, Finding, failed, ok, skipped, warning
from deploy.doctor.dicom_header import LOOKED_AT_BYTES, Identity, read_identity
from deploy.doctor.file_names import looks_like_a_person
from deploy.doctor.hospital import Hospital
from deploy.doctor.image_files import how_to_find, image_files, place

_LIMIT_S = 900.0
_SUFFIXES = (".png", ".jpg", ".jpeg")
# Texts of programs and cameras: companies have commas and capitals, too, and every picture was made some day.
_HARMLESS_KEY = re.compile(r"software|copyright|make|model|date|time|profile|xmp|xml", re.IGNORECASE)
_TELLING_KEY = re.compile(r"patient|birth|mrn|accession|referring|person", re.IGNORECASE)


def _read_headers(site: Hospital) -> Finding:
    root, files = _files(site)
    counts = dict.fromkeys(Identity, 0)
    first = 0
    for number, path in enumerate(files, start=1):
        with path.open("rb") as file:
            identity = read_identity(file.read(LOOKED_AT_BYTES))
        counts[identity] += 1
        if identity is Identity.PRESENT and not first:
            first = number
    dicom = len(files) - counts[Identity.NO_DICOM]
    if first:
        return failed(
            f"{counts[Identity.PRESENT]} of {dicom} DICOM files hold a name, an id or a date of birth; the first is "
            f"{place(first, len(files))}",
            _deidentify(root, first),
        )
    if counts[Identity.UNKNOWN]:
        return warning(f"the headers of {counts[Identity.UNKNOWN]} of {dicom} DICOM files could not be read")
    return ok(f"{dicom} DICOM files, none of which says whom it shows") if dicom else skipped("no DICOM files")


def _read_names(site: Hospital) -> Finding:
    root, files = _files(site)
    telling = [
        number
        for number, path in enumerate(files, start=1)
        if any(map(looks_like_a_person, path.relative_to(root).parts if root.is_dir() else (path.name,)))
    ]
    if telling:
        return failed(
            f"{len(telling)} of {len(files)} files have, or lie in a folder with, a name that looks like a person, a "
            f"date or a record number; the first is {place(telling[0], len(files))}",
            _deidentify(root, telling[0]),
        )
    return ok(f"nothing of the kind in {len(files)} names")


def _read_texts(site: Hospital) -> Finding:
    root, files = _files(site)
    pictures = [(number, path) for number, path in enumerate(files, start=1) if path.suffix.lower() in _SUFFIXES]
    if not pictures:
        return skipped("no PNG or JPEG files")
    telling = [number for number, path in pictures if any(_tells(key, text) for key, text in _texts(path))]
    if telling:
        return failed(
            f"texts in {len(telling)} of {len(pictures)} pictures name a patient or look like a person; the first is "
            f"{place(telling[0], len(files))}",
            _deidentify(root, telling[0]),
        )
    return ok(f"nothing of the kind in {len(pictures)} pictures")


def _tells(key: str, text: str) -> bool:
    if not text.strip():
        return False
    return bool(_TELLING_KEY.search(key)) or (not _HARMLESS_KEY.search(key) and looks_like_a_person(text))


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what a picture says in words; nothing where it cannot be opened, which is another check's business."""
    try:
        with Image.open(path) as image:
            yield from ((str(key), text) for key, text in image.info.items() if isinstance(text, str))
            exif = image.getexif()
            yield from ((TAGS.get(tag, ""), text) for tag, text in exif.items() if isinstance(text, str))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return


def _files(site: Hospital) -> tuple[Path, list[Path]]:
    root = Path(site.policy().data.root)
    return root, image_files(root)


def _deidentify(root: Path, number: int) -> str:
    return f"Use these images only after the hospital's own de-identification. {how_to_find(root, number)}"


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="phi-dicom",
        title="whom the headers of DICOM files name",
        expected="no name, id or date of birth (0010,0010), (0010,0020), (0010,0030), unless identity was removed "
        "(0012,0062)",
        mend="Use these images only after the hospital's own de-identification.",
        look=_read_headers,
        needs=("data-readable",),
        limit_s=_LIMIT_S,
    ),
    Check(
        id="phi-file-names",
        title="whom the names of files and folders name",
        expected="no names, dates or record numbers",
        mend="Rename the files to pseudonyms that only the hospital can resolve.",
        look=_read_names,
        needs=("data-readable",),
        limit_s=_LIMIT_S,
    ),
    Check(
        id="phi-image-text",
        title="what the texts in PNG and JPEG files say",
        expected="no names, dates or record numbers beside the pixels",
        mend="Strip text chunks and EXIF from the pictures.",
        look=_read_texts,
        needs=("data-readable",),
        limit_s=_LIMIT_S,
    ),
)
