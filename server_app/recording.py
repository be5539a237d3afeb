"""Keeps what hospitals send, and the models they started from, where `record.updates` asks for it.

What is kept is what arrived, before the server weighs it; an update that is refused as too old or too late is kept as
well, since it has left its hospital. An attack may read images from an update, so that only the server's own user may
read the files. Read next: `federation.recorded_updates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from federation.config import Configuration
from federation.datasets.image_set import DatasetInfo
from federation.errors import RunFailedError
from federation.parameters import Parameters
from federation.recorded_updates.folder import KeptModel, UpdateFolder
from federation.recorded_updates.metadata import Origin, RecordedData
from federation.records.answers import ModelUpdate


class Recording:
    """The recorded updates of one run; does nothing unless the run asks for them."""

    def __init__(self, folder: Path, settings: Configuration, info: DatasetInfo) -> None:
        """Record into `folder`, which is made with the first file, a run whose images are as `info` says."""
        self._settings = settings
        self._data = RecordedData.of(info, name=settings.data.name)
        self._folder = UpdateFolder(folder, secret=True) if settings.record.updates else None
        self._models: dict[int, KeptModel] = {}

    def keep_model(self, version: int, parameters: Parameters) -> None:
        """Write the model of `version`, which hospitals are about to be sent; once however many they are.

        Raises:
            RunFailedError: the disk refused.
        """
        if self._folder and version not in self._models:
            with _explained(self._folder.path):
                self._models[version] = self._folder.keep_model(version, parameters)

    def keep_update(self, answer: ModelUpdate, like: Mapping[str, Tensor]) -> bool:
        """Write `answer`, and return whether it is there now, or need not be.

        It cannot be written where the model it started from was sent before the run was asked to record.

        Args:
            answer: a reply that fits the model.
            like: parameters of the model, whose names count.

        Raises:
            RunFailedError: the disk refused.
        """
        if not self._folder:
            return True
        version, settings = answer.model_version, self._settings
        with _explained(self._folder.path):
            model = self._models.get(version) or self._folder.find_model(version, like)
            if model is None:
                return False
            origin = Origin(
                run=settings.run.name,
                model=settings.model,
                data=self._data,
                training=settings.training.at_version(version),
            )
            self._folder.keep_update(answer, origin, model)
        return True


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFailedError(
            f"Expected to record updates in {folder}, found that the disk refuses: {error}. Make room and resume, or "
            "resume with record.updates=false."
        ) from None
