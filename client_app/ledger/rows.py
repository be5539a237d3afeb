"""One row of the ledger, and how rows are chained and sealed so that none can change, vanish or slip in unnoticed."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1
DIGEST_BYTES = 32
START = bytes(DIGEST_BYTES)
_SEAL = b"aegis ledger row 1\0"


class Kind(StrEnum):
    """What a row says.

    GENESIS: this ledger begins, for this hospital. RESERVE: a release is paid for. COMMIT: it may leave. CANCEL: the
    process that reserved it made nothing of it, the cost comes back. EXPIRE: a process died over it, the cost stays.
    """

    GENESIS = "genesis"
    RESERVE = "reserve"
    COMMIT = "commit"
    CANCEL = "cancel"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the ledger, as stored.

    Attributes:
        seq: its number, from 1 without gaps.
        kind: a value of `Kind`.
        time: UTC, ISO 8601; for people only, no decision depends on it.
        body: canonical JSON of what the row says.
        digest: sha256 over the digest of the row before (zeros for the first) and everything above.
        seal: HMAC-SHA256 of `digest` under the hospital's key.
    """

    seq: int
    kind: str
    time: str
    body: str
    digest: bytes
    seal: bytes

    @property
    def content(self) -> dict[str, Any]:
        """The body, decoded.

        Raises:
            ValueError: it is not a JSON table.
        """
        decoded = json.loads(self.body)
        if not isinstance(decoded, dict):
            raise ValueError(f"Expected a table, found {type(decoded).__name__}.")
        return decoded


def make_row(previous: bytes, *, seq: int, kind: Kind, content: Mapping[str, Any], key: bytes) -> Row:
    """Return the row that follows the one whose digest is `previous`, sealed under `key`, with the time now."""
    body = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    time = datetime.now(UTC).isoformat(timespec="microseconds")
    digest = chain_digest(previous, seq=seq, kind=kind.value, time=time, body=body)
    return Row(seq=seq, kind=kind.value, time=time, body=body, digest=digest, seal=seal_of(digest, key))


def chain_digest(previous: bytes, *, seq: int, kind: str, time: str, body: str) -> bytes:
    """Return the sha256 over `previous` and the row's other columns, which one JSON list keeps apart."""
    return hashlib.sha256(previous + json.dumps([seq, kind, time, body]).encode()).digest()


def seal_of(digest: bytes, key: bytes) -> bytes:
    """Return the HMAC-SHA256 of a row's `digest` under `key`: whoever lacks the key cannot add a row."""
    return hmac.digest(key, _SEAL + digest, "sha256")
