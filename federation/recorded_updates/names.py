"""Names of the files of recorded updates, such that no hospital's id can take another file's name.

`<version>-model.safetensors` is the model, `<version>-<hospital id>.safetensors` an update and the same with `.json`
its metadata. What would get a name that is taken by other content gets `~2`, `~3`, ... after it, and a hospital that
calls itself "model" is written `~model`: no identifier holds a "~".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from federation.identifiers import IDENTIFIER_PATTERN

TENSORS, FACTS = ".safetensors", ".json"

_MODEL = "model"
MODEL_FILE = re.compile(rf"\d+-{_MODEL}(?:~\d+)?\{TENSORS}")
RECORD_FILE = re.compile(rf"\d+-~?{IDENTIFIER_PATTERN}(?:~\d+)?(?:\{TENSORS}|\{FACTS})")


def is_model_file(path: Path) -> bool:
    """Return whether `path` is named as the model of some version."""
    return MODEL_FILE.fullmatch(path.name) is not None


def is_record_file(path: Path) -> bool:
    """Return whether `path` is named as a file of recorded updates."""
    return RECORD_FILE.fullmatch(path.name) is not None


def model_stems(version: int) -> Iterator[str]:
    """Yield the names, without ending, that the model of `version` may have, in the order in which they are taken."""
    return _variants(f"{version}-{_MODEL}")


def update_stems(version: int, hospital_id: str) -> Iterator[str]:
    """Yield the names, without ending, that an update may have, in the order in which they are taken."""
    return _variants(f"{version}-{'~' if hospital_id == _MODEL else ''}{hospital_id}")


def facts_beside(tensors: Path) -> Path:
    """Return where the metadata of the update in `tensors` lies."""
    return tensors.with_name(tensors.name.removesuffix(TENSORS) + FACTS)


def tensors_beside(facts: Path) -> Path:
    """Return where the update lies that the metadata in `facts` are about."""
    return facts.with_name(facts.name.removesuffix(FACTS) + TENSORS)


def version_of(path: Path) -> int:
    """Return the model version that the name of a file of recorded updates begins with."""
    return int(path.name.partition("-")[0])


def _variants(stem: str) -> Iterator[str]:
    yield stem
    for number in itertools.count(2):
        yield f"{stem}~{number}"
