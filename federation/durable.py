"""Files that survive a crash: after a power cut a reader finds the old content or the new one, never a part of either.

Checkpoints, summaries and reports are written through here, so that the order of the steps stands in one place.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

Piece = bytes | memoryview


def write_durably(path: Path, content: Piece | Iterable[Piece], *, mode: int = 0o666) -> None:
    """Replace the file at `path` by `content` in one step that survives a crash once this returns.

    The content goes to a temporary file in the same folder, is forced to the disk, and is then renamed over `path`;
    last, the folder is forced to the disk, because the new name lives there. A symbolic link at `path` is replaced,
    not followed. The file has the permissions `mode` from its first byte on, less what the process's umask takes.

    Guarantee: at every moment `path` holds its whole old content or its whole new one, on a POSIX file system with
        atomic rename. The temporary file is removed when a step fails.
    Not guaranteed: when forcing the folder fails, the new content is in place but may be lost by a crash; a process
        killed in between leaves a file `.write-*.tmp` behind, which nobody reads and anybody may delete.

    Args:
        path: file to write; its folder must exist.
        content: the whole new content, or its pieces in order: large ones are written from where they lie.
        mode: permissions of the file; 0o600 keeps others from reading it.

    Raises:
        OSError: the folder is missing, `path` is a folder, or the disk refused; before the rename `path` is unchanged.
    """
    temporary = path.parent / f".write-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        try:
            file.writelines([content] if isinstance(content, Piece) else content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in `folder` to the disk: once this returns, what was made, renamed or deleted there stays so.

    Raises:
        OSError: the folder is missing, or the disk refused.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
