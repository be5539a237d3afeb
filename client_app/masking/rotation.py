"""Whose turn it is among the blocks of a cache: a count on the hospital's own volume, which no server can turn back."""

from __future__ import annotations

import json
from pathlib import Path

from federation.durable import write_durably
from federation.errors import CacheError


def next_block(folder: Path, hospital_id: str, cache: str, blocks: int) -> int:
    """Return the number of the block whose turn it is, from 0 to `blocks` - 1, and note durably that it was used.

    The count is written before the block is used, so a crash skips a block and never repeats one. Another cache begins
    at its first block.

    Args:
        folder: the hospital's state folder.
        hospital_id: whose count.
        cache: digest of the cache.
        blocks: how many it has, at least 1.

    Raises:
        CacheError: the count cannot be read or written.
    """
    path = folder / "masking" / f"{hospital_id}.rotation"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        used = _read(path, cache)
        write_durably(path, json.dumps({"cache": cache, "used": used + 1}).encode(), mode=0o600)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CacheError(
            f"{path}: expected a count of used blocks that can be read and written, found {error!r}: mend the volume, "
            "or delete the file to begin at the first block."
        ) from None
    return used % blocks


def _read(path: Path, cache: str) -> int:
    if not path.exists():
        return 0
    content = json.loads(path.read_text(encoding="utf-8"))
    used = content["used"]
    if type(used) is not int or used < 0:
        raise ValueError(f"used={used!r}")
    return used if content["cache"] == cache else 0
