"""Checking a bundle or a kit against the coordinator's public key, and unpacking exactly what was checked."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deploy.bundle.archive import ArchiveReader, mode_of
from deploy.bundle.contents import BUNDLE_FILE, BundleContents, read_contents
from deploy.trust.kit import FILE as KIT_FILE
from deploy.trust.manifest import SIGNATURE, SUMS, SignedList, read_signed, require_digest, verify_folder
from deploy.trust.signing import VerificationError
from federation.durable import sync_folder
from federation.errors import ConfigurationError

_MOST_CONTENTS_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What was found to be exactly what the coordinator signed.

    Attributes:
        contents: of the bundle; None for a kit by itself.
        digests: of every file, by name.
    """

    contents: BundleContents | None
    digests: dict[str, str]


def verify(path: Path, key: Ed25519PublicKey, *, extract: Path | None = None) -> Verified:
    """Return what is in a bundle or a kit, once every byte of it was found to be what was signed.

    Guarantee: nothing but the list is looked at before its signature was found right, and what appears at `extract`
        are the very bytes that were checked: they are read once, and written while they are checked to a folder that
        gets its name only when everything was right.
    Not guaranteed: that `key` is the coordinator's; compare its fingerprint on the telephone.

    Args:
        path: the archive, or the folder that it was unpacked to, or the folder of a kit.
        key: of the coordinator.
        extract: where the files go; nothing may be there.

    Raises:
        VerificationError: something is not what was signed, in one sentence.
        ConfigurationError: there is no bundle, or something is where it shall go.
    """
    if not path.exists():
        raise ConfigurationError(f"Expected a bundle at {path}, found nothing.")
    if extract is not None and (extract.exists() or extract.is_symlink()):
        raise ConfigurationError(f"Expected nothing at {extract}, found something: name another --extract.")
    with _target(extract) as folder:
        taker = _Taker(folder)
        signed = verify_folder(path, key, taker.take) if path.is_dir() else _verify_archive(path, key, taker)
        for name, content in ((SUMS, signed.sums), (SIGNATURE, signed.signature)):
            taker.take(name, iter((content,)))
        if BUNDLE_FILE not in signed.digests and KIT_FILE not in signed.digests:
            raise VerificationError(
                f"Expected a bundle or a kit at {path}, found neither {BUNDLE_FILE} nor {KIT_FILE}."
            )
        contents = read_contents(taker.contents, signed.digests) if BUNDLE_FILE in signed.digests else None
    return Verified(contents=contents, digests=signed.digests)


class _Taker:
    """Hashes what it is given, and writes it below a folder where there is one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.contents = b""

    def take(self, name: str, chunks: Iterator[bytes]) -> str:
        """Return the SHA-256 of the content in hexadecimal, once all of it is on the disk."""
        digest = hashlib.sha256()
        with ExitStack() as stack:
            file = None if self._folder is None else stack.enter_context(_create(self._folder / name, mode_of(name)))
            for chunk in chunks:
                digest.update(chunk)
                if file is not None:
                    file.write(chunk)
                if name == BUNDLE_FILE:
                    self._keep(chunk)
            if file is not None:
                file.flush()
                os.fsync(file.fileno())
        return digest.hexdigest()

    def _keep(self, chunk: bytes) -> None:
        self.contents += chunk
        if len(self.contents) > _MOST_CONTENTS_BYTES:
            raise VerificationError(f"Expected {BUNDLE_FILE} of at most {_MOST_CONTENTS_BYTES} bytes, found more.")


def _verify_archive(path: Path, key: Ed25519PublicKey, taker: _Taker) -> SignedList:
    with path.open("rb") as file:
        reader = ArchiveReader(file)
        signed = read_signed(*reader.read_list(), key)
        for name, chunks in reader.read_files(signed.digests):
            require_digest(name, expected=signed.digests[name], found=taker.take(name, chunks))
    return signed


def _create(path: Path, mode: int) -> BinaryIO:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    return os.fdopen(descriptor, "wb")


@contextmanager
def _target(extract: Path | None) -> Iterator[Path | None]:
    """Give a new folder that is called `extract` once the block has ended well, and is gone when it has not."""
    if extract is None:
        yield None
        return
    extract.parent.mkdir(parents=True, exist_ok=True)
    folder = extract.parent / f".bundle-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
        folder.rename(extract)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync_folder(extract.parent)
