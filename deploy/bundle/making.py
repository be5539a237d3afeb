"""Making an offline bundle: the image, the kit and documents, signed, in one archive that is the same every time."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deploy.bundle.archive import ending, header, padding
from deploy.bundle.contents import (
    BUNDLE_FILE,
    DOCS_FOLDER,
    IMAGE_FOLDER,
    KIT_FOLDER,
    BundleContents,
    BundledImage,
)
from deploy.trust.kit import Kit
from deploy.trust.manifest import (
    SIGNATURE,
    SUMS,
    digest_of,
    is_safe_name,
    list_files,
    open_file,
    read_chunks,
    render_sums,
    verify_folder,
)
from deploy.trust.signing import VerificationError
from federation.durable import write_durably
from federation.errors import ConfigurationError

_SOFTWARE = ("aegis-fl", "flwr", "torch")
_PRIVATE = b"PRIVATE KEY-----"
_BEGINNING = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """What a bundle is made of.

    Attributes:
        kit: folder of the hospital's kit, signed with the key that signs the bundle.
        image: archive of the container image, as `docker save` writes it.
        docs: folders of documents.
    """

    kit: Path
    image: Path
    docs: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
    """One file of the bundle: its digest and size, and its content, or where it lies."""

    digest: str
    size: int
    content: bytes | Path


def make_bundle(sources: Sources, key: Ed25519PrivateKey, out: Path) -> BundleContents:
    """Write the bundle as the file `out`, readable by its owner alone; large files are never held in memory.

    Raises:
        ConfigurationError: a source is missing, or holds what no bundle may.
        VerificationError: the kit is not what was signed, or a folder holds links.
        OSError: the disk refused.
    """
    kit = Kit.read(sources.kit)
    try:
        verify_folder(sources.kit, key.public_key())
    except VerificationError as error:
        raise VerificationError(
            f"{error} If the kit was changed on purpose, sign it again: aegis enrol sign."
        ) from None
    members = {name: _member(path) for name, path in _find(sources).items()}
    image_name = f"{IMAGE_FOLDER}/{sources.image.name}"
    image = members[image_name]
    contents = BundleContents(
        consortium=kit.consortium,
        hospital_id=kit.hospital_id,
        versions={name: version(name) for name in _SOFTWARE},
        image=BundledImage(file=image_name, sha256=image.digest, size_bytes=image.size),
    )
    members[BUNDLE_FILE] = _in_memory(contents.model_dump_json(by_alias=True, indent=1).encode() + b"\n")
    sums = render_sums({name: member.digest for name, member in members.items()})
    first = {SUMS: _in_memory(sums), SIGNATURE: _in_memory(key.sign(sums))}
    write_durably(out, _pieces(first | dict(sorted(members.items()))), mode=0o600)
    return contents


def _find(sources: Sources) -> dict[str, Path]:
    """Return where the files of the bundle lie, by their names in it."""
    if not sources.image.is_file() or not tarfile.is_tarfile(sources.image):
        raise ConfigurationError(
            f"Expected the archive of an image in {sources.image}, found none: docker save --output FILE IMAGE."
        )
    found = {f"{IMAGE_FOLDER}/{sources.image.name}": sources.image.resolve()}
    found |= {f"{KIT_FOLDER}/{name}": sources.kit / name for name in list_files(sources.kit)}
    for folder in sources.docs:
        if not folder.is_dir():
            raise ConfigurationError(f"Expected a folder of documents, found {folder}, which is none.")
        top = f"{DOCS_FOLDER}/{folder.resolve().name}"
        if any(name.startswith(f"{top}/") for name in found):
            raise ConfigurationError(f"Expected folders of documents with different names, found {top!r} twice.")
        found |= {f"{top}/{name}": _public(folder / name) for name in list_files(folder)}
    for name, path in found.items():
        _require_bundled(name, path)
    return found


def _public(path: Path) -> Path:
    with open_file(path) as file:
        if _PRIVATE in file.read(_BEGINNING):
            raise ConfigurationError(f"Expected documents, found a private key in {path}: it must not be handed out.")
    return path


def _require_bundled(name: str, path: Path) -> None:
    try:
        header(name, path.stat().st_size)
    except ValueError:
        raise ConfigurationError(
            f"Expected names of at most 100 bytes and files below 8 GiB, found {path}: rename or leave it out."
        ) from None
    if not is_safe_name(name):
        raise ConfigurationError(f"Expected printable names without backslashes, found {name!r}: rename it.")


def _member(path: Path) -> _Member:
    return _Member(digest=digest_of(path), size=path.stat().st_size, content=path)


def _in_memory(content: bytes) -> _Member:
    return _Member(digest=hashlib.sha256(content).hexdigest(), size=len(content), content=content)


def _pieces(members: Mapping[str, _Member]) -> Iterator[bytes]:
    """Yield the archive; a file that is not any more what was signed ends it."""
    position = 0
    for name, member in members.items():
        yield header(name, member.size)
        if isinstance(member.content, bytes):
            yield member.content
        else:
            yield from _unchanged(member.content, member)
        yield padding(member.size)
        position += len(header(name, member.size)) + member.size + len(padding(member.size))
    yield ending(position)


def _unchanged(path: Path, member: _Member) -> Iterator[bytes]:
    digest = hashlib.sha256()
    with open_file(path) as file:
        for chunk in read_chunks(file):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != member.digest:
        raise VerificationError(f"Expected {path} to stay as it is while it is packed, found it changed: repeat.")
