"""Reads recorded updates, and refuses whatever is not as it was written: an attack on other tensors proves nothing.

Only safetensors are opened, which hold numbers and no code. Read next: `federation.recorded_updates`, which writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from federation.errors import DataError, ModelError, RefusalError
from federation.models import build_empty_model
from federation.parameters import Parameters, digest, require_like
from federation.recorded_updates.metadata import UpdateMetadata, read_metadata
from federation.recorded_updates.names import FACTS, TENSORS, facts_beside, is_model_file, tensors_beside

_EXECUTABLE = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".npz", ".npy", ".joblib"})
_HEADER_AT = 8
_REMEDY = "copy it again from where the update was recorded, or leave the update out"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedUpdate:
    """One update, and the model it started from.

    Tensors are read from the disk, and checked, each time they are asked for, so that a list of many takes no memory.

    Attributes:
        path: of the update's file.
        metadata: what is known of it.
    """

    path: Path
    metadata: UpdateMetadata

    @property
    def broadcast(self) -> Parameters:
        """The model that the hospital received, in the order of its state dict.

        Raises:
            DataError: the file is missing, damaged, not safetensors, or holds another model than the metadata say.
        """
        path = self.path.with_name(self.metadata.model_file)
        found = _load(path, self.metadata.model_sha256, self._like())
        if (name := digest(found)) != self.metadata.model_digest:
            raise DataError(
                f"{path}: expected the model with digest {self.metadata.model_digest}, found {name}: it is another "
                "model than the update started from. Copy the one that was recorded with the update."
            )
        return found

    @property
    def update(self) -> Parameters:
        """Parameters after local training minus those received, as they left the hospital, in the model's order.

        Raises:
            DataError: the file is missing, damaged, not safetensors, not finite, or does not fit the model.
        """
        return _load(self.path, self.metadata.update_sha256, self._like())

    def _like(self) -> Mapping[str, Tensor]:
        """Return tensors of the names, shapes and dtypes of the model that the metadata name; their values are none."""
        try:
            return build_empty_model(self.metadata.model, self.metadata.data.info).state_dict()
        except (ModelError, RuntimeError) as error:  # Torch raises RuntimeError for shapes that fit nowhere.
            raise DataError(
                f"{facts_beside(self.path)}: expected a network that can be built, found {error}: copy the metadata "
                "again from where the update was recorded."
            ) from None


def read_records(folder: Path) -> list[RecordedUpdate]:
    """Return the recorded updates in `folder`, sorted by version and hospital; tensors are read when asked for.

    Args:
        folder: `updates/` of a run, or of a hospital's outbox the folder of one run.

    Raises:
        DataError: there are none, metadata are missing, damaged or of another format, a file of tensors is missing, or
            there is a file of another kind than safetensors, which could run code when it is read.
    """
    if not folder.is_dir():
        raise DataError(f"Expected a folder of recorded updates, found none at {folder}: {_ORIGIN}.")
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in paths:
        if path.suffix.lower() in _EXECUTABLE:
            raise DataError(f"{path}: expected safetensors only, found {path.suffix}, which is not read: remove it.")
    updates = [path for path in paths if path.name.endswith(TENSORS) and not is_model_file(path)]
    alone = [path for path in paths if path.name.endswith(FACTS) and not tensors_beside(path).exists()]
    if alone:
        raise DataError(
            f"{alone[0]}: expected the update {tensors_beside(alone[0]).name} beside it, found none: copy it from "
            "where it was recorded, or delete the metadata."
        )
    records = [_describe(path) for path in updates]
    if not records:
        raise DataError(f"Expected recorded updates in {folder}, found none: {_ORIGIN}.")
    return sorted(records, key=lambda record: (record.metadata.model_version, record.metadata.hospital_id, record.path))


_ORIGIN = (
    "a run with record.updates=true writes them to updates/ in its folder, a hospital with [outbox] to a folder per run"
)


def _describe(path: Path) -> RecordedUpdate:
    metadata = read_metadata(facts_beside(path))
    if not (model := path.with_name(metadata.model_file)).exists():
        raise DataError(
            f"{path}: expected the model {model.name} beside it, found none: copy it from where it was sent."
        )
    return RecordedUpdate(path=path, metadata=metadata)


def _load(path: Path, sha256: str, like: Mapping[str, Tensor]) -> Parameters:
    """Return the tensors in the file at `path`, in the order of `like`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: expected a file of tensors, found that it cannot be read: {error}.") from None
    if content[_HEADER_AT : _HEADER_AT + 1] != b"{":
        raise DataError(
            f"{path}: expected safetensors only, found a file of another kind or a damaged one: a pickle or an archive "
            f"of arrays is never read; {_REMEDY}."
        )
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(f"{path}: expected sha256 {sha256}, found {found}: it is damaged or another file; {_REMEDY}.")
    try:
        tensors = safetensors.torch.load(content)
        ordered = {name: tensors[name] for name in like if name in tensors} | tensors
        require_like(ordered, like)
    except (SafetensorError, ValueError) as error:
        raise DataError(f"{path}: expected safetensors, found {error}; {_REMEDY}.") from None
    except RefusalError as error:
        raise DataError(f"{path} does not hold what its metadata say: {error.detail} Please {_REMEDY}.") from None
    return ordered
