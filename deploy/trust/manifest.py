"""`SHA256SUMS` and its signature: the list of every file of a kit or a bundle, in the form that `sha256sum` reads.

A list has one form only: sorted, each name once, every name a relative path that cannot leave its folder. Whoever
holds the coordinator's public key can tell from it whether a file was changed, added, taken away or renamed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from deploy.trust.signing import SIGNATURE_BYTES, VerificationError, require_signature
from federation.durable import write_durably
from federation.errors import ConfigurationError

SUMS = "SHA256SUMS"
SIGNATURE = f"{SUMS}.sig"
MOST_SUMS_BYTES = 1 << 24
_CHUNK = 1 << 20
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedList:
    """A list whose signature was found right.

    Attributes:
        sums: the list, byte for byte.
        signature: of it.
        digests: SHA-256 in hexadecimal by name, in the order of the list.
    """

    sums: bytes
    signature: bytes
    digests: dict[str, str]


def is_safe_name(name: str) -> bool:
    """Return whether `name` is a plain relative path: it stays in its folder and fits a line of the list."""
    return name.isprintable() and "\\" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def render_sums(digests: Mapping[str, str]) -> bytes:
    """Return the list of `digests`, SHA-256 in hexadecimal by file name, in its one form."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()


def parse_sums(content: bytes) -> dict[str, str]:
    """Return the digests by name that the list `content` holds, in its order.

    Raises:
        VerificationError: it is not in the one form, or names files that cannot lie in one folder.
    """
    try:
        lines = [_LINE.fullmatch(line) for line in content.decode().splitlines()]
    except UnicodeDecodeError:
        lines = [None]
    digests = {found[2]: found[1] for found in lines if found}
    folders = {parent.as_posix() for name in digests for parent in Path(name).parents}
    if not lines or None in lines or content != render_sums(digests):
        raise VerificationError(f"Expected {SUMS} to list digests and names, sorted, found something else in it.")
    for name in digests:
        if not is_safe_name(name) or name in (SUMS, SIGNATURE) or name in folders:
            raise VerificationError(f"Expected {SUMS} to name files within its folder, found {name!r}.")
    return digests


def list_files(folder: Path) -> Iterator[str]:
    """Yield the names of all files below `folder`, relative to it, sorted within each folder.

    Raises:
        VerificationError: something there is neither file nor folder, a link for example.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from (f"{entry.name}/{name}" for name in list_files(folder / entry.name))
        elif entry.is_file(follow_symlinks=False):
            yield entry.name
        else:
            raise VerificationError(f"Expected files and folders only, found {entry.path!r}, a link or a device.")


def open_file(path: Path) -> BinaryIO:
    """Return the file at `path`, open for reading; the last part of the path is not followed where it is a link.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"Expected {path} to be a regular file.")
    return os.fdopen(descriptor, "rb")


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield what is left of `file`, at most 1 MiB at a time."""
    while chunk := file.read(_CHUNK):
        yield chunk


def digest_of(path: Path) -> str:
    """Return the SHA-256 of the file at `path` in hexadecimal; it is never held in memory as a whole."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        for chunk in read_chunks(file):
            digest.update(chunk)
    return digest.hexdigest()


def sign_folder(folder: Path, key: Ed25519PrivateKey) -> bytes:
    """Write the list of all files below `folder` and its signature into `folder`; return the list.

    Raises:
        ConfigurationError: a file has a name that a list cannot hold.
        VerificationError: something there is neither file nor folder.
    """
    names = [name for name in list_files(folder) if name not in (SUMS, SIGNATURE)]
    for name in names:
        if not is_safe_name(name):
            raise ConfigurationError(f"Expected printable names without backslashes in {folder}, found {name!r}.")
    sums = render_sums({name: digest_of(folder / name) for name in names})
    write_durably(folder / SUMS, sums, mode=0o644)
    write_durably(folder / SIGNATURE, key.sign(sums), mode=0o644)
    return sums


def read_signed(sums: bytes, signature: bytes, key: Ed25519PublicKey) -> SignedList:
    """Return the list `sums`, which is looked into only when its signature is right.

    Raises:
        VerificationError: the signature is not of `key`, or the list is not one.
    """
    require_signature(key, signature, sums)
    return SignedList(sums=sums, signature=signature, digests=parse_sums(sums))


def verify_folder(
    folder: Path, key: Ed25519PublicKey, take: Callable[[str, Iterator[bytes]], str] | None = None
) -> SignedList:
    """Return the list of the signed files in `folder`, once each of them is what was signed and nothing else is there.

    Args:
        folder: with `SHA256SUMS` and its signature at its top.
        key: of the coordinator.
        take: is given each file's name and content, and returns its SHA-256 in hexadecimal; default: computes it.

    Raises:
        VerificationError: the signature is wrong, a file was changed, added or taken away, or something is a link.
        OSError: a file cannot be read.
    """
    found = set(list_files(folder))
    for name in (SUMS, SIGNATURE):
        if name not in found:
            raise VerificationError(f"Expected {name} in {folder}, found none: nothing here is signed.")
    with open_file(folder / SUMS) as sums, open_file(folder / SIGNATURE) as signature:
        signed = read_signed(sums.read(MOST_SUMS_BYTES), signature.read(SIGNATURE_BYTES + 1), key)
    if extra := sorted(found - set(signed.digests) - {SUMS, SIGNATURE}):
        raise VerificationError(f"Expected only what {SUMS} lists in {folder}, found also {extra[0]!r}.")
    if missing := sorted(set(signed.digests) - found):
        raise VerificationError(f"Expected {missing[0]!r} in {folder}, as {SUMS} lists it, found it missing.")
    for name, digest in signed.digests.items():
        with open_file(folder / name) as file:
            actual = (take or _hash)(name, read_chunks(file))
        require_digest(name, expected=digest, found=actual)
    return signed


def require_digest(name: str, *, expected: str, found: str) -> None:
    """Return if both digests of the file `name` are equal.

    Raises:
        VerificationError: they are not.
    """
    if expected != found:
        raise VerificationError(f"Expected {name!r} with SHA-256 {expected}, found {found}: it was changed.")


def _hash(_: str, chunks: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
