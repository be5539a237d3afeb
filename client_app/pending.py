"""The one result that a hospital keeps while the server decides whether it is still wanted.

Under two-phase release an update that came too late is discarded before it costs anything, so it has to wait somewhere
that outlives the process: here, encrypted, on the hospital's own volume. Read next: `client_app.trained_update`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from client_app.ledger.faults import explained
from client_app.ledger.keys import make_folder, make_key, read_key, sync_folder, write_secret
from client_app.site import Site
from client_app.trained_update import TrainedUpdate, decode_trained_update, encode_trained_update
from federation.errors import SiteError, SiteErrorCode

_MAGIC = b"aegis pending result 1\n"
_LENGTH_BYTES, _NONCE_BYTES, _TAG_BYTES = 2, 12, 16
_FIELDS = 4


class PendingStore:
    """The slot for one unreleased result of one hospital.

    Guarantee: bounded quantity, what `folder` shows of a kept result: hospital id, name and id of the run, model
        version and length. The rest is encrypted with AES-256-GCM under a key that lies in `key_folder` only, with a
        fresh nonce per file, and the file is never readable by others. `load` returns bit for bit what `keep` was given
        for this hospital, run and version, or raises, also after a crash or a restart of the hospital or the server.
    Not guaranteed: differential privacy, of any kind: a kept result tells as much as the images it was trained on.
        Secrecy from whoever may read both folders, which a simulated site has within each other. That deleting erases
        blocks of the disk or a backup. That an older result of the same run and version, put back by whoever may write
        `folder`, is noticed; it leaves under the key of its own task only, so at most once and paid for.
    """

    def __init__(self, folder: Path, *, hospital_id: str, key_folder: Path) -> None:
        """Use `folder`, which is made when a result is kept, and the key of `hospital_id` in `key_folder`."""
        self._hospital_id = hospital_id
        self._path = folder / f"{hospital_id}.pending"
        self._key_path = key_folder / f"{hospital_id}.pending-key"

    @classmethod
    def of(cls, site: Site) -> PendingStore:
        """Return the slot of `site`."""
        return cls(site.state_dir / "pending", hospital_id=site.hospital_id, key_folder=site.keys_dir)

    def keep(self, trained: TrainedUpdate) -> None:
        """Keep `trained` instead of what was kept before; when this returns, it is on the disk.

        Raises:
            LedgerError: a volume refused, or the key is not as it was made.
        """
        label = _make_label(self._hospital_id, trained)
        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(self._make_key()).encrypt(nonce, encode_trained_update(trained), label)
        make_folder(self._path.parent)
        with explained(self._path):
            self._path.parent.chmod(0o700)
        write_secret(self._path, label + nonce + sealed)

    def load(self, *, run: str, asked_by: str | None, model_version: int) -> TrainedUpdate:
        """Return what is kept of the run named `run` and `model_version`.

        Args:
            run: name of the run.
            asked_by: Flower's id of the run that asked for the training; None for any, as a resumed run has a new one.
            model_version: from which it was trained.

        Raises:
            SiteError: there is nothing, it is of another run, version or hospital, or it is not as it was kept.
            LedgerError: a volume refused, or the key is not as it was made.
        """
        label, content = self._find(run, asked_by, model_version)
        if not self._key_path.is_file():
            raise _nothing(f"{self._key_path}: expected the key of {self._path}, found none.")
        nonce, sealed = content[len(label) :][:_NONCE_BYTES], content[len(label) + _NONCE_BYTES :]
        if len(sealed) < _TAG_BYTES:
            raise _nothing(f"{self._path}: expected a whole result, found it cut off.")
        try:
            plain = AESGCM(self._read_key()).decrypt(nonce, sealed, label)
        except InvalidTag:
            raise _nothing(f"{self._path}: expected the result as it was kept, found another or another key.") from None
        return decode_trained_update(plain)

    def discard(self, *, run: str, asked_by: str | None, model_version: int) -> None:
        """Delete what `load` would return; when this returns, it is gone from the disk.

        Raises:
            SiteError: there is nothing, or it is of another run, version or hospital.
            LedgerError: a volume refused.
        """
        self._find(run, asked_by, model_version)
        self.clear()

    def clear(self) -> None:
        """Delete whatever is kept, of whichever run.

        Raises:
            LedgerError: a volume refused.
        """
        with explained(self._path):
            for path in (self._path, self._path.with_name(f"{self._path.name}.new")):
                with suppress(FileNotFoundError):
                    path.unlink()
                    sync_folder(path.parent)

    def _find(self, run: str, asked_by: str | None, model_version: int) -> tuple[bytes, bytes]:
        """Return the label of what was asked for, and the file's content, which begins with it."""
        with explained(self._path):
            try:
                content = self._path.read_bytes()
            except FileNotFoundError:
                raise _nothing(f"{self._path}: expected a kept result, found none.") from None
        label, whose, asked_first = _read_label(content)
        if whose != [self._hospital_id, run, model_version] or asked_by not in (None, asked_first):
            raise _nothing(
                f"{self._path}: expected the result of run {run!r} for version {model_version}, found another one."
            )
        return label, content

    def _make_key(self) -> bytes:
        if self._key_path.exists():
            return self._read_key()
        make_folder(self._key_path.parent)
        return make_key(self._key_path)

    def _read_key(self) -> bytes:
        return read_key(
            self._key_path,
            whose="the key of kept results",
            remedy="delete it, and a new one is made with the next training task",
        )


def _nothing(detail: str) -> SiteError:
    return SiteError(SiteErrorCode.NOTHING_PENDING, detail)


def _make_label(hospital_id: str, trained: TrainedUpdate) -> bytes:
    """Return how a file begins: whose result it holds, which is not secret and which the encryption vouches for."""
    body = json.dumps([hospital_id, trained.run, trained.model_version, trained.key.run]).encode()
    return _MAGIC + len(body).to_bytes(_LENGTH_BYTES, "big") + body


def _read_label(content: bytes) -> tuple[bytes, list[object], object]:
    """Return the label that `content` begins with, whose result it names, and the id of the run that asked for it."""
    start = len(_MAGIC) + _LENGTH_BYTES
    end = start + int.from_bytes(content[len(_MAGIC) : start], "big")
    try:
        fields = json.loads(content[start:end]) if content.startswith(_MAGIC) else None
    except ValueError:
        fields = None
    if not isinstance(fields, list) or len(fields) != _FIELDS:
        return b"", [], None
    return content[:end], fields[:-1], fields[-1]
