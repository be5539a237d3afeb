"""Files that survive a crash: after a power cut a reader finds the old content or the new one, never a part of either.

Checkpoints, summaries and reports are written through here, so that the order of the steps stands in one place.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

Piece = bytes | memoryview


def write_durably(path: Path, content: Piece | Iterable[Piece]) -> None:
    """Replace the file at `path` by `content` in one step that survives a crash once this returns.

    The content goes to a temporary file in the same folder, is forced to the disk, and is then renamed over `path`;
    last, the folder is forced to the disk, because the new name lives there. A symbolic link at `path` is replaced,
    not followed. The file gets the permissions that the process's umask gives to any new file.

    Guarantee: at every moment `path` holds its whole old content or its whole new one, on a POSIX file system with
        atomic rename. The temporary file is removed when a step fails.
    Not guaranteed: when forcing the folder fails, the new content is in place but may be lost by a crash; a process
        killed in between leaves a file `.write-*.tmp` behind, which nobody reads and anybody may delete.

    Args:
        path: file to write; its folder must exist.
        content: the whole new content, or its pieces in order: large ones are written from where they lie.

    Raises:
        OSError: the folder is missing, `path` is a folder, or the disk refused; before the rename `path` is unchanged.
    """
    temporary = path.parent / f".write-{secrets.token_hex(8)}.tmp"
    with temporary.open("xb") as file:
        try:
            file.writelines([content] if isinstance(content, Piece) else content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
