"""Where accepted updates wait until they are applied: on the disk in a deployment, in memory in a simulation.

A hospital has paid for an update with its privacy budget and will not send it twice, so a server that is killed must
not lose it. In a simulation the hospitals stop with the server and give the same answer again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from federation.durable import write_durably
from federation.errors import CheckpointError, RefusalError
from federation.parameters import Parameters, digest, require_structure
from federation.records.declarations import Declaration, decode_declaration, encode_declaration
from federation.tensor_file import as_pieces
from server_app.aggregation.rule import Update
from server_app.clock import Clock
from server_app.run_folder import RunFolder

Kept = tuple[Update, Declaration | None]


class UpdateBuffer(Protocol):
    """Holds accepted updates until a version that contains them is durable."""

    def hold(self, update: Update, declaration: Declaration | None) -> Update:
        """Return `update` as it waits; once this returns, it survives what the buffer is there to survive."""

    def drop(self, numbers: Collection[int]) -> None:
        """Forget the updates with these `numbers`: they are part of a durable version, or not wanted."""

    def restore(self, like: Mapping[str, Tensor], consumed: Collection[int]) -> list[Kept]:
        """Return what an earlier session has left, in order, after dropping the numbers in `consumed`.

        Raises:
            CheckpointError: a file is damaged, or does not fit `like`.
        """


class MemoryBuffer:
    """Keeps updates as they are; a restarted simulation trains them again."""

    def hold(self, update: Update, declaration: Declaration | None) -> Update:
        """Return `update`."""
        del declaration
        return update

    def drop(self, numbers: Collection[int]) -> None:
        """Do nothing."""

    def restore(self, like: Mapping[str, Tensor], consumed: Collection[int]) -> list[Kept]:
        """Return nothing."""
        del like, consumed
        return []


class DiskBuffer:
    """One file per waiting update, so that waiting takes no memory and outlives the server.

    Guarantee: once `hold` returns, the update is on the disk until `drop`, whenever the process is killed.
    Not guaranteed: that an update which arrived is held; one that was in the server's hands when it was killed is lost,
        as it would be on the way.
    """

    def __init__(self, folder: Path) -> None:
        """Keep updates in `folder`, which is created."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def hold(self, update: Update, declaration: Declaration | None) -> Update:
        """Write `update` durably and return it with tensors that are read when they are needed."""
        path = self._path(update.number)
        facts = {name: getattr(update, name) for name in _FACTS} | {"declaration": encode_declaration(declaration)}
        tensors = update.load()
        write_durably(path, as_pieces(tensors, {"facts": json.dumps(facts), "digest": _digest_all(tensors, facts)}))
        return _read_later(path, facts)

    def drop(self, numbers: Collection[int]) -> None:
        """Delete the files of the updates with these `numbers`."""
        for number in numbers:
            self._path(number).unlink(missing_ok=True)

    def restore(self, like: Mapping[str, Tensor], consumed: Collection[int]) -> list[Kept]:
        """Return the updates that wait, in order of their numbers."""
        self.drop(consumed)
        return [_read(path, like) for path in sorted(self._folder.glob("update-*.safetensors"))]

    def _path(self, number: int) -> Path:
        return self._folder / f"update-{number:010d}.safetensors"


_FACTS = ("number", "hospital_id", "base_version", "examples", "norm", "noise_variance", "cosine")


def _read_later(path: Path, facts: Mapping[str, object]) -> Update:
    """Return the update at `path` with tensors that are read when they are needed."""
    known = {name: facts[name] for name in _FACTS}
    return Update(**known, load=lambda: safetensors.torch.load_file(path))  # type: ignore[arg-type]


def _read(path: Path, like: Mapping[str, Tensor]) -> Kept:
    """Return the update at `path`; its digest shows that everything in it is as it was written."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            facts = json.loads(metadata["facts"])
            found: Parameters = {name: file.get_tensor(name) for name in like}
            extra = set(file.keys()) - set(like)
        require_structure(found, like)
        if extra or metadata["digest"] != _digest_all(found, facts):
            raise ValueError("content and digest differ")
        return _read_later(path, facts), decode_declaration(facts["declaration"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RefusalError) as error:
        raise CheckpointError(
            f"{path} holds an update that waits, and cannot be used: {error}. Delete it to go on without it."
        ) from None


def _digest_all(tensors: Parameters, facts: Mapping[str, object]) -> str:
    """Return the sha256 of an update's tensors and of what is known of it."""
    return hashlib.sha256((digest(tensors) + json.dumps(facts, sort_keys=True)).encode()).hexdigest()


def make_buffer(clock: Clock, folder: RunFolder) -> UpdateBuffer:
    """Return the buffer of a run: in memory where hospitals begin again with a restarted server, else on the disk."""
    return MemoryBuffer() if clock.replays else DiskBuffer(folder.buffer)
