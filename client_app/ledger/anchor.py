"""Where the ledger stood last, kept on another volume than the ledger, so that an older ledger is noticed.

The file has two slots in blocks of their own, written in turn: a write that a crash tears leaves the other slot, which
is one row behind, and that is what an interrupted call leaves as well.
"""

from __future__ import annotations

import hmac
import os
import struct
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from client_app.ledger.faults import explained
from client_app.ledger.keys import write_secret
from client_app.ledger.rows import DIGEST_BYTES
from federation.errors import LedgerError

_DOMAIN = b"aegis ledger anchor 1\0"
_SLOT = struct.Struct(f"<8sQQ16s{DIGEST_BYTES}s")
_MAGIC = b"AEGISANC"
_SLOT_BYTES = 4096
_MAC_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The last row of a ledger.

    Attributes:
        ledger_id: 16 random bytes that the ledger was born with.
        seq: number of its last row; 0 while its file is still to be made.
        digest: of that row; zeros while there is none.
    """

    ledger_id: bytes
    seq: int
    digest: bytes


class Anchor:
    """The anchor file of one hospital, open for reading and writing.

    Guarantee: once `write` has returned, a crash of process or machine leaves that position or a later one readable,
        and nobody without the key can make the file say another.
    Not guaranteed: an older copy of the whole file is a valid anchor; only the ledger's own rows contradict it.
    """

    def __init__(self, path: Path, *, key: bytes, hospital_id: str, writable: bool = True) -> None:
        """Open the anchor at `path` and read its newest slot.

        Raises:
            LedgerError: the file is missing or unreadable, or no slot is of this hospital and key.
        """
        self._path = path
        self._key = key
        self._domain = _DOMAIN + hospital_id.encode() + b"\0"
        with explained(path):
            self._descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
            content = os.pread(self._descriptor, 2 * _SLOT_BYTES, 0)
        slots = [self._parse(content[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES)]
        known = [slot for slot in slots if slot is not None]
        if not known:
            self.close()
            raise LedgerError(
                f"{path}: expected the anchor of hospital {hospital_id!r} under its key, found it damaged, changed or "
                "foreign: restore the newest backup of the key folder. Nothing was released."
            )
        self._turn, self.position = max(known, key=lambda slot: slot[0])

    @classmethod
    def create(cls, path: Path, *, key: bytes, hospital_id: str, ledger_id: bytes) -> Anchor:
        """Write the anchor of a ledger whose file is still to be made, durably, and return it opened.

        Raises:
            LedgerError: it cannot be written.
        """
        domain = _DOMAIN + hospital_id.encode() + b"\0"
        position = Position(ledger_id=ledger_id, seq=0, digest=bytes(DIGEST_BYTES))
        first = _pack(0, position, key=key, domain=domain)
        write_secret(path, first.ljust(2 * _SLOT_BYTES, b"\0"))
        return cls(path, key=key, hospital_id=hospital_id)

    def write(self, position: Position) -> None:
        """Make `position` the anchor, durably.

        Raises:
            LedgerError: the disk refused.
        """
        turn = self._turn + 1
        packed = _pack(turn, position, key=self._key, domain=self._domain)
        with explained(self._path):
            if os.pwrite(self._descriptor, packed, (turn % 2) * _SLOT_BYTES) != len(packed):
                raise LedgerError(f"{self._path}: expected room for {len(packed)} bytes. Nothing was released.")
            os.fdatasync(self._descriptor)
        self._turn, self.position = turn, position

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _parse(self, slot: bytes) -> tuple[int, Position] | None:
        packed, mac = slot[: _SLOT.size], slot[_SLOT.size : _SLOT.size + _MAC_BYTES]
        if len(mac) < _MAC_BYTES or not hmac.compare_digest(mac, _mac(packed, key=self._key, domain=self._domain)):
            return None
        _, turn, seq, ledger_id, digest = _SLOT.unpack(packed)
        return turn, Position(ledger_id=ledger_id, seq=seq, digest=digest)


def read_position(path: Path, *, key: bytes, hospital_id: str) -> Position:
    """Return what the anchor at `path` says, without writing to it.

    Raises:
        LedgerError: the file is missing or unreadable, or no slot is of this hospital and key.
    """
    with closing(Anchor(path, key=key, hospital_id=hospital_id, writable=False)) as anchor:
        return anchor.position


def _pack(turn: int, position: Position, *, key: bytes, domain: bytes) -> bytes:
    packed = _SLOT.pack(_MAGIC, turn, position.seq, position.ledger_id, position.digest)
    return packed + _mac(packed, key=key, domain=domain)


def _mac(packed: bytes, *, key: bytes, domain: bytes) -> bytes:
    return hmac.digest(key, domain + packed, "sha256")
