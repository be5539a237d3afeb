"""What the file system refused, in words: which file, what was expected, what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from federation.errors import CacheError

RESUME = "run again with --resume"
FRESH = "start the build again with --fresh"
REBUILD = "restore the cache from a backup, or build it again"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = "permission to read and write it, found none: give the folder to the user that runs this and {remedy}"
_BY_NUMBER = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: "a volume that can be written, found it read-only: mount it for writing and {remedy}",
    errno.ENOENT: "it to be there, found nothing: {remedy}",
    errno.ENOTDIR: "a folder to hold it, found a file: {remedy}",
    errno.EISDIR: "a file, found a folder: move it away and {remedy}",
    errno.EMFILE: "fewer files to be open, found the limit reached: raise `ulimit -n` and {remedy}",
}
_FAILING = "it to work, found an error of the file system: look at its volume and {remedy}"


@contextmanager
def explained(path: Path, *, remedy: str = RESUME, size_bytes: int = 0) -> Iterator[None]:
    """Turn an error of the file system about `path` in the block into a `CacheError` with a remedy.

    Args:
        path: what the block reads or writes.
        remedy: what to do once the cause is gone, or at once where nothing else helps.
        size_bytes: what the block writes; 0 when it is little.
    """
    try:
        yield
    except OSError as error:
        room, amount = (f"{size_bytes} bytes on", f"{size_bytes} bytes") if size_bytes else ("a file on", "some")
        full = f"room for {room} its volume, found it full: free {amount} and {{remedy}}"
        wanted = full if error.errno in _FULL else _BY_NUMBER.get(error.errno or 0, _FAILING)
        reason = error.strerror or error
        raise CacheError(f"{path}: expected {wanted.format(remedy=remedy)} ({reason}).") from error
