"""JSON objects on disk that carry a digest of themselves, so that a changed one is told from a whole one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from aegis_cache.store.faults import RESUME, explained
from federation.config.table import Table
from federation.durable import write_durably
from federation.errors import CacheError

_SEAL = "seal"
_TableT = TypeVar("_TableT", bound=Table)


def encode_sealed(table: Table) -> bytes:
    """Return `table` as a JSON object whose last key, `seal`, is the sha256 of the canonical JSON of all others.

    Raises:
        CacheError: it holds something that JSON cannot.
    """
    try:
        content = json.loads(json.dumps(table.model_dump(by_alias=True), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CacheError(f"{type(table).__name__}: expected texts and finite numbers, found {error}.") from None
    return (json.dumps({**content, _SEAL: _digest(content)}, indent=1) + "\n").encode()


def write_sealed(path: Path, content: bytes) -> None:
    """Write what `encode_sealed` returned to `path`, durably and with mode 0600.

    Raises:
        CacheError: the volume refused.
    """
    with explained(path, size_bytes=len(content)):
        write_durably(path, content, mode=0o600)


def read_sealed(path: Path, *, remedy: str = RESUME) -> dict[str, Any]:
    """Return the object at `path` without its seal.

    Args:
        path: where `write_sealed` wrote it.
        remedy: what to do when it cannot be used.

    Raises:
        CacheError: it is missing, no such object, or not as it was written.
    """
    with explained(path, remedy=remedy):
        return decode_sealed(path, path.read_bytes(), remedy=remedy)


def decode_sealed(path: Path, encoded: bytes, *, remedy: str = RESUME) -> dict[str, Any]:
    """Return the object in `encoded`, which was read from `path`, without its seal.

    Raises:
        CacheError: there is none, or it is not as it was written.
    """
    try:
        content = json.loads(encoded)
        seal = content.pop(_SEAL) if isinstance(content, dict) else None
        whole = isinstance(content, dict) and seal == _digest(content)
    except (ValueError, KeyError, RecursionError):
        raise CacheError(f"{path}: expected a JSON object with a seal, found none: {remedy}.") from None
    if not whole:
        raise CacheError(f"{path}: expected it as it was written, found it altered: {remedy}.")
    return dict(content)


def parse_sealed(path: Path, content: Mapping[str, Any], kind: type[_TableT], *, remedy: str = RESUME) -> _TableT:
    """Return `content`, which was read from `path`, as a table of the given `kind`.

    Raises:
        CacheError: it is none.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise CacheError(f"{path}: expected a {kind.__name__}, found at {key!r}: {first['msg']}: {remedy}.") from None


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
