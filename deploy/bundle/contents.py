"""What an offline bundle says of itself: `bundle.json`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, ValidationError

from deploy.trust.manifest import is_safe_name
from deploy.trust.signing import VerificationError
from federation.config.table import Table

BUNDLE_FILE = "bundle.json"
KIT_FOLDER, IMAGE_FOLDER, DOCS_FOLDER = "kit", "image", "docs"


class BundledImage(Table):
    """The archive of the container image.

    Attributes:
        file: its name in the bundle.
        sha256: of that file, in hexadecimal.
        size_bytes: of that file.
    """

    file: str
    sha256: str
    size_bytes: int = Field(ge=0)


class BundleContents(Table):
    """Everything in `bundle.json`.

    Attributes:
        format: of this file.
        consortium: its name.
        hospital_id: whom the kit is for.
        versions: of the software that made the bundle, by name.
        image: what to load.
    """

    format: int = Field(1, ge=1, le=1)
    consortium: str
    hospital_id: str
    versions: dict[str, str]
    image: BundledImage


def read_contents(content: bytes, digests: Mapping[str, str]) -> BundleContents:
    """Return what `bundle.json` says, if it fits the signed list.

    Args:
        content: of the file.
        digests: of all files of the bundle, by name.

    Raises:
        VerificationError: it is no such file, or names another image than the list.
    """
    try:
        found = BundleContents.model_validate_json(content)
    except ValidationError as error:
        raise VerificationError(f"Expected {BUNDLE_FILE} of a bundle, found: {error.errors()[0]['msg']}") from None
    if not is_safe_name(found.image.file) or digests.get(found.image.file) != found.image.sha256:
        raise VerificationError(f"Expected {BUNDLE_FILE} to name the image in the bundle, found {found.image.file!r}.")
    return found
