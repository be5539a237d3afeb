"""The files below a hospital's data root, named by their place in sorted order: their own names may say who it is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path


def image_files(root: Path) -> list[Path]:
    """Return all files below `root`, which may be a file itself, in the order of their names as bytes.

    Links are followed, but not back into a folder that they lie in.

    Raises:
        OSError: a folder cannot be listed.
    """
    if root.is_file():
        return [root]
    return sorted(_walk(root), key=os.fsencode)


def place(number: int, total: int) -> str:
    """Return which file of `total` is meant, `number` counted from 1."""
    return f"file {number} of {total} in sorted order"


def how_to_find(root: Path, number: int) -> str:
    """Return what to do, here inside the hospital, to see which file lies at that place below `root`."""
    command = f"find -L {shlex.quote(str(root))} -type f | LC_ALL=C sort | sed -n {number}p"
    return f"To see which file that is, on a machine of the hospital: {command}"


def _walk(folder: Path, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[Path]:
    status = folder.stat()
    own = (status.st_dev, status.st_ino)
    if own in above:
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _walk(path, above | {own})
        elif path.is_file():
            yield path
