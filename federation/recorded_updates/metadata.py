"""What is written beside a recorded update: public facts of the run and digests of the two tensor files, no more.

Nothing here is computed from images: an update's own reader, and nobody else, looks into its tensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from federation.config import ModelConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import DataError
from federation.identifiers import IDENTIFIER_PATTERN
from federation.recorded_updates.names import MODEL_FILE

FORMAT = 1

_SHOWN = 3
_REMEDY = "copy it again from where the update was recorded, or delete the update"

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Name = Annotated[str, Field(pattern=f"^{IDENTIFIER_PATTERN}$")]
_Length = Annotated[int, Field(ge=1)]


class _Facts(BaseModel):
    """Frozen facts; unknown ones, loose types, infinities and NaN are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class RecordedData(_Facts):
    """What the images of a hospital look like.

    Attributes:
        name: of the kind of data, as the run configuration or the site policy calls it.
        task: what is predicted.
        shape: of an image, (C, H, W).
        class_names: one per class or label; numbered where the writer has no data.
    """

    name: str
    task: Task
    shape: tuple[_Length, _Length, _Length]
    class_names: tuple[str, ...]

    @classmethod
    def of(cls, info: DatasetInfo, *, name: str) -> Self:
        """Return what `info` says, under the `name` that the configuration has for the data."""
        shape = (info.channels, info.height, info.width)
        return cls(name=name, task=info.task, shape=shape, class_names=info.class_names)

    @property
    def info(self) -> DatasetInfo:
        """The description that a model is built from."""
        channels, height, width = self.shape
        return DatasetInfo(
            name=self.name,
            task=self.task,
            class_names=self.class_names,
            channels=channels,
            height=height,
            width=width,
        )


class Origin(_Facts):
    """What is known of an update before it is sent.

    Attributes:
        run: name of the run.
        model: which network.
        data: what it is trained on.
        training: the plan that the hospital was sent, at the version it started from.
    """

    run: _Name
    model: ModelConfig
    data: RecordedData
    training: TrainingConfig


class UpdateMetadata(Origin):
    """Everything in the JSON file of a recorded update.

    Attributes:
        format: of the folder.
        hospital_id: who sent the update.
        model_version: of the model it started from.
        examples: training images behind it, as declared.
        declaration: how it is protected, as the reply said it, for `decode_declaration`; empty where it is not.
        model_file: name of the file beside this one that holds the model it started from.
        update_sha256: of the file that holds the update.
        model_sha256: of `model_file`.
        model_digest: of the model's parameters, from `federation.parameters.digest`.
    """

    format: int
    hospital_id: _Name
    model_version: int = Field(ge=0)
    examples: int = Field(ge=1)
    declaration: dict[str, str | int | float]
    model_file: str = Field(pattern=f"^{MODEL_FILE.pattern}$")
    update_sha256: _Sha256
    model_sha256: _Sha256
    model_digest: _Sha256


def encode_metadata(metadata: UpdateMetadata) -> bytes:
    """Return `metadata` as JSON."""
    return metadata.model_dump_json(indent=1, by_alias=True).encode()


def read_metadata(path: Path) -> UpdateMetadata:
    """Return the metadata in the file at `path`.

    Raises:
        DataError: it is missing, of another format, or not what is written beside an update.
    """
    try:
        content = path.read_bytes()
        found = _Head.model_validate_json(content).format
    except FileNotFoundError:
        raise DataError(f"Expected metadata {path}, found no file: {_REMEDY}.") from None
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{path}: expected metadata as JSON, found something else: {_explain(error)}; {_REMEDY}."
        ) from None
    if type(found) is not int or found != FORMAT:
        raise DataError(
            f"{path}: expected recorded updates of format {FORMAT}, found {found!r}: read them with the version of "
            "aegis-fl that recorded them."
        )
    try:
        return UpdateMetadata.model_validate_json(content)
    except ValidationError as error:
        raise DataError(f"{path}: expected the facts of an update, found {_explain(error)}; {_REMEDY}.") from None


class _Head(BaseModel):
    """The one fact that every format has."""

    format: Any = None


def _explain(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return str(error)
    return ", ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:_SHOWN])
