"""The form of an offline bundle: a tar archive of which every byte follows from the signed list and the files.

First comes the list, then its signature, then the files in the order of the list. Headers hold a name, a size and a
mode that follows from the name; owner and times are fixed. So the same files always make the same archive, a reader
meets the signature before anything it must not trust, and there is no byte left that could be changed unnoticed.
Any `tar` unpacks it.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from deploy.trust.manifest import MOST_SUMS_BYTES, SIGNATURE, SUMS, is_safe_name
from deploy.trust.signing import SIGNATURE_BYTES, VerificationError

_BLOCK = tarfile.BLOCKSIZE
_RECORD = tarfile.RECORDSIZE
_CHUNK = 1 << 20
_ZEROS = bytes(_BLOCK)
# 1980-01-01, the earliest day that every archive format knows.
_TIME = 315532800


def mode_of(name: str) -> int:
    """Return the permissions of a file in a bundle: private keys are for their owner alone."""
    return 0o600 if name.endswith(".key") else 0o644


def header(name: str, size: int) -> bytes:
    """Return the one header that a file of that name and size can have.

    Raises:
        ValueError: the name is longer, or the file larger, than a plain header can hold.
    """
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, mode_of(name), _TIME
    return entry.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")


def padding(size: int, unit: int = _BLOCK) -> bytes:
    """Return the zeros that fill `size` bytes up to whole units."""
    return bytes(-size % unit)


def ending(size: int) -> bytes:
    """Return what ends an archive that is `size` bytes long so far."""
    return 2 * _ZEROS + padding(size + 2 * _BLOCK, _RECORD)


class ArchiveReader:
    """Reads an archive of that form once, from its beginning to its end, and stops at the first byte that differs."""

    def __init__(self, file: BinaryIO) -> None:
        """Read from `file`, which need not be seekable."""
        self._file = file
        self._position = 0
        self._seen: set[str] = set()
        self._listed: frozenset[str] = frozenset()

    def read_list(self) -> tuple[bytes, bytes]:
        """Return the list and its signature, neither of them checked.

        Raises:
            VerificationError: the archive does not begin with them.
        """
        sums = b"".join(self._read_file(SUMS, MOST_SUMS_BYTES))
        return sums, b"".join(self._read_file(SIGNATURE, SIGNATURE_BYTES))

    def read_files(self, names: Iterable[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield each listed file with its content, which is to be read before the next; then nothing may follow.

        Args:
            names: in the order of the list.

        Raises:
            VerificationError: something else comes.
        """
        order = tuple(names)
        self._listed = frozenset(order)
        for name in order:
            yield name, self._read_file(name)
        self._finish()

    def _read_file(self, name: str, most_bytes: int | None = None) -> Iterator[bytes]:
        size = self._check_header(self._read(_BLOCK, name), name)
        if most_bytes is not None and size > most_bytes:
            raise VerificationError(f"Expected {name!r} of at most {most_bytes} bytes, found {size}.")
        left = size
        while left:
            chunk = self._read(min(left, _CHUNK), name)
            left -= len(chunk)
            yield chunk
        if self._read(-size % _BLOCK, name).strip(b"\0"):
            raise VerificationError(f"Expected zeros behind {name!r}, found something else there.")
        self._seen.add(name)

    def _finish(self) -> None:
        expected = ending(self._position)
        found = self._file.read(len(expected) + 1)
        if found == expected:
            return
        if len(found) >= _BLOCK and found[:_BLOCK] != _ZEROS:
            raise self._unexpected(_parse(found[:_BLOCK]))
        raise VerificationError("Expected the archive to end behind its last file, found another ending.")

    def _read(self, size: int, name: str) -> bytes:
        found = self._file.read(size)
        self._position += len(found)
        if len(found) < size:
            raise VerificationError(f"Expected {name!r} as a whole, found that the archive ends within or before it.")
        return found

    def _check_header(self, block: bytes, name: str) -> int:
        """Return the size that the header tells, if the header is the only one this file can have."""
        entry = _parse(block)
        if block == _ZEROS or (entry and entry.name in self._listed - self._seen - {name}):
            raise VerificationError(f"Expected {name!r}, as {SUMS} lists it, found it missing.")
        if entry is None or entry.name != name:
            raise self._unexpected(entry)
        if not entry.isreg():
            raise VerificationError(f"Expected {name!r} to be a file, found a link, a folder or a device.")
        try:
            expected = header(name, entry.size)
        except ValueError:
            expected = b""
        if block != expected:
            raise VerificationError(f"Expected the header of {name!r} to tell its name and size, found more in it.")
        return entry.size

    def _unexpected(self, entry: tarfile.TarInfo | None) -> VerificationError:
        """Return the refusal of what stands where another file, or the end, must be."""
        if entry is None:
            found = "found what is none: it is no bundle, or was damaged"
        elif not is_safe_name(entry.name):
            found = f"found {entry.name!r}, which cannot be a file in a folder"
        elif entry.name in self._seen:
            found = f"found {entry.name!r} twice"
        else:
            found = f"found also {entry.name!r}"
        return VerificationError(f"Expected only files that {SUMS} lists, each once, in their order, {found}.")


def _parse(block: bytes) -> tarfile.TarInfo | None:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.TarError, ValueError):
        return None
