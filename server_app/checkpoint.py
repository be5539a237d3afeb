"""Checkpoints: one file per model version that holds parameters, progress and configuration, replaced atomically.

A version exists when its file has its final name; everything before that is as if it had never happened. So a run
killed at any point resumes at the last complete version, and no update is applied twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open

from federation.config import Configuration, flatten
from federation.durable import write_durably
from federation.errors import CheckpointError
from federation.parameters import Parameters, digest
from server_app.progress import Progress
from server_app.tensor_file import SEAL, sealed_pieces

_FORMAT = "aegis-checkpoint-3"
_STATE = "server-optimizer/"
_MAY_CHANGE = frozenset(
    {
        "run.resume",
        "run.root",
        "run.wait-s",
        "run.keep-checkpoints",
        "run.checkpoint-every",
        "run.allow-silent-hospitals",
        "run.hospitals",
        "run.hospital-ids",
        "run.min-hospitals",
        "run.evaluate-every",
        "run.hospital-evaluation",
        "run.central-evaluation",
        "aggregation.rounds",
        "aggregation.deadline-s",
        "aggregation.give-up-s",
        "aggregation.min-updates",
        "aggregation.max-empty-rounds",
        "aggregation.server-learning-rate",
        "training.learning-rate",
        "training.learning-rate-decay",
        "data.root",
        "training.device",
        "record.updates",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The server's state at one model version.

    Attributes:
        parameters: of the model.
        progress: counters and curve.
        optimizer_state: of the server optimizer; empty for plain averaging.
        changed: keys that may change and did since the checkpoint was written, with both values; for the event log.
    """

    parameters: Parameters
    progress: Progress
    optimizer_state: Parameters = field(default_factory=dict)
    changed: tuple[str, ...] = ()


class CheckpointStore:
    """The checkpoints of one run, newest last."""

    def __init__(self, folder: Path, configuration: Configuration) -> None:
        """Use `folder` for a run with `configuration`."""
        self._folder = folder
        self._configuration = configuration
        self._second_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._deleting: Future[None] | None = None

    def save(self, checkpoint: Checkpoint) -> None:
        """Write `checkpoint` durably, then delete all but the newest `run.keep-checkpoints`.

        A second thread takes the digest while this one writes, and deletes while the run goes on. What cannot be
        deleted is left, and tried again at the next call.
        """
        metadata = {
            "format": _FORMAT,
            "names": json.dumps(list(checkpoint.parameters)),
            "optimizer-names": json.dumps(list(checkpoint.optimizer_state)),
            "configuration": json.dumps(flatten(self._configuration)),
            "progress": checkpoint.progress.model_dump_json(),
        }
        tensors = checkpoint.parameters | _prefixed(checkpoint.optimizer_state)
        found = self._second_thread.submit(_digest_all, tensors, metadata)
        write_durably(self._path(checkpoint.progress.model_version), sealed_pieces(tensors, metadata, found.result))
        self._deleting = self._second_thread.submit(_delete, self._superseded(checkpoint.progress))

    def finish(self) -> None:
        """Return once what is superseded is deleted, or has shown that it cannot be."""
        deleting, self._deleting = self._deleting, None
        if deleting:
            deleting.result()

    def has_version(self, version: int) -> bool:
        """Return whether there is a checkpoint of `version`."""
        return self._path(version).exists()

    def load_version(self, version: int) -> Parameters:
        """Return the parameters of `version`, which a task is based on that was open at the newest checkpoint.

        Raises:
            CheckpointError: they are not there, or damaged.
        """
        return self._load(self._path(version)).parameters

    def _superseded(self, progress: Progress) -> list[Path]:
        """Return all but the newest checkpoints and those of the versions that hospitals work on."""
        needed = {self._path(task.version) for task in progress.in_flight}
        if progress.evaluation:
            needed.add(self._path(progress.evaluation.version))
        return [old for old in self._paths()[: -self._configuration.run.keep_checkpoints] if old not in needed]

    def load_newest(self) -> Checkpoint:
        """Return the newest checkpoint.

        Raises:
            CheckpointError: there is none, it is damaged, or it belongs to another configuration.
        """
        paths = self._paths()
        if not paths:
            raise CheckpointError(f"Expected a checkpoint in {self._folder}, found none: start without run.resume.")
        return self._load(paths[-1])

    def _load(self, path: Path) -> Checkpoint:
        parameters, state, metadata, seal = _read(path)
        found = _digest_all(parameters | _prefixed(state), metadata)
        if metadata.get("format") != _FORMAT or seal != found:
            raise CheckpointError(
                f"{path} is damaged: content and digest differ. Delete it to resume from the one before."
            )
        changed = self._compare(json.loads(metadata["configuration"]))
        progress = Progress.model_validate_json(metadata["progress"])
        return Checkpoint(parameters=parameters, progress=progress, optimizer_state=state, changed=changed)

    def _path(self, version: int) -> Path:
        return self._folder / f"version-{version:08d}.safetensors"

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("version-*.safetensors"))

    def _compare(self, saved: dict[str, object]) -> tuple[str, ...]:
        """Return what changed and may; refuse what may not."""
        now = flatten(self._configuration)
        changed = {
            key: f"{key}: checkpoint {saved.get(key)!r}, now {value!r}"
            for key, value in now.items()
            if saved.get(key) != value
        }
        if forbidden := [text for key, text in changed.items() if key not in _MAY_CHANGE]:
            raise CheckpointError("The configuration changed since the checkpoint:\n" + "\n".join(forbidden))
        return tuple(text for key, text in changed.items() if key != "run.resume")


def _delete(paths: Iterable[Path]) -> None:
    """Delete `paths`; the next ones where one cannot be: an old checkpoint too many is no reason to end a run."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def is_written(configuration: Configuration, version: int) -> bool:
    """Return whether `version` becomes durable when it is made: every `run.checkpoint-every`-th does, and the last."""
    return version % configuration.run.checkpoint_every == 0 or version >= configuration.aggregation.rounds


def _prefixed(state: Parameters) -> Parameters:
    """Return the optimizer's tensors under names that no parameter has."""
    return {f"{_STATE}{name}": value for name, value in state.items()}


def _digest_all(tensors: Parameters, metadata: Mapping[str, str]) -> bytes:
    """Return the sha256 of all tensors and of everything else the file says: damaged progress is damage, too."""
    return hashlib.sha256((digest(tensors) + json.dumps(dict(metadata), sort_keys=True)).encode()).digest()


def _read(path: Path) -> tuple[Parameters, Parameters, dict[str, str], bytes]:
    """Return parameters, state of the server optimizer, metadata and seal."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            names: list[str] = json.loads(metadata["names"])
            state_names: list[str] = json.loads(metadata["optimizer-names"])
            parameters = {name: file.get_tensor(name) for name in names}
            state = {name: file.get_tensor(f"{_STATE}{name}") for name in state_names}
            return parameters, state, metadata, bytes(file.get_tensor(SEAL).numpy())
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. Delete it to resume from the one before.") from None
