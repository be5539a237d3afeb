"""Writes recorded updates: the model once per version, each update once, and its metadata last.

An update exists when its metadata do. What a crash leaves before that is written over by the next update of that name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError

from federation.durable import Piece, sync_folder, write_durably
from federation.parameters import Parameters, digest
from federation.recorded_updates.metadata import FORMAT, Origin, UpdateMetadata, encode_metadata
from federation.recorded_updates.names import FACTS, TENSORS, model_stems, update_stems
from federation.records.answers import ModelUpdate
from federation.records.declarations import encode_declaration
from federation.tensor_file import as_pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModel:
    """A model that was written.

    Attributes:
        file: its name in the folder.
        sha256: of that file.
        digest: of the parameters.
    """

    file: str
    sha256: str
    digest: str


class UpdateFolder:
    """A folder of recorded updates, to be written to; a later run of the same name adds to it."""

    def __init__(self, path: Path, *, secret: bool = False) -> None:
        """Write to `path`, which is made with the first file; `secret` keeps other users from reading it."""
        self.path = path
        self._file_mode, self._folder_mode = (0o600, 0o700) if secret else (0o666, 0o777)

    def keep_model(self, version: int, parameters: Parameters) -> KeptModel:
        """Write `parameters` as the model of `version` unless they are there, and return what was kept.

        Raises:
            OSError: the disk refused.
        """
        pieces = as_pieces(parameters)
        found = _sha256(pieces)
        for stem in model_stems(version):
            path = self.path / f"{stem}{TENSORS}"
            if not path.exists():
                self._write(path, pieces)
            elif _sha256([path.read_bytes()]) != found:
                continue
            break
        return KeptModel(file=path.name, sha256=found, digest=digest(parameters))

    def find_model(self, version: int, names: Iterable[str]) -> KeptModel | None:
        """Return the model of `version` that was written last; None where there is none with parameters of `names`.

        Raises:
            OSError: the disk refused.
        """
        newest = None
        for stem in model_stems(version):
            path = self.path / f"{stem}{TENSORS}"
            if not path.exists():
                break
            newest = path
        if newest is None:
            return None
        content, ordered = newest.read_bytes(), list(names)
        try:
            tensors = safetensors.torch.load(content)
        except SafetensorError:
            return None
        if set(tensors) != set(ordered):
            return None
        parameters = {name: tensors[name] for name in ordered}
        return KeptModel(file=newest.name, sha256=_sha256([content]), digest=digest(parameters))

    def keep_update(self, answer: ModelUpdate, origin: Origin, model: KeptModel) -> Path:
        """Write `answer`, which started from `model`, unless it is there, and return where its metadata lie.

        Another update of the same hospital and version is left as it is, and this one gets a name of its own.

        Raises:
            OSError: the disk refused.
        """
        pieces = as_pieces(answer.update)
        found = _sha256(pieces)
        for stem in update_stems(answer.model_version, answer.hospital_id):
            facts = self.path / f"{stem}{FACTS}"
            if not facts.exists():
                break
            if _digests_in(facts) == (found, model.sha256):
                return facts
        metadata = UpdateMetadata(
            format=FORMAT,
            run=origin.run,
            hospital_id=answer.hospital_id,
            model_version=answer.model_version,
            examples=answer.examples,
            declaration=encode_declaration(answer.declaration),
            model=origin.model,
            data=origin.data,
            training=origin.training,
            model_file=model.file,
            update_sha256=found,
            model_sha256=model.sha256,
            model_digest=model.digest,
        )
        self._write(self.path / f"{stem}{TENSORS}", pieces)
        self._write(facts, [encode_metadata(metadata)])
        return facts

    def _write(self, path: Path, pieces: Sequence[Piece]) -> None:
        if not self.path.is_dir():
            self.path.mkdir(parents=True, exist_ok=True, mode=self._folder_mode)
            sync_folder(self.path.parent)
        write_durably(path, pieces, mode=self._file_mode)


def _sha256(pieces: Iterable[Piece]) -> str:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def _digests_in(facts: Path) -> tuple[object, object]:
    """Return the sha256 of update and model in a metadata file; of a damaged one, which stays as it is, nothing."""
    try:
        content = json.loads(facts.read_bytes())
        return content["update_sha256"], content["model_sha256"]
    except (ValueError, KeyError, TypeError):
        return None, None
