"""The files of a diffusers pipeline: where they lie, which are missing, and what they hold. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from federation.errors import GenerationError

_INDEX = "model_index.json"
_STEMS = ("diffusion_pytorch_model", "model")
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model")
_TEXTS = (".json", ".txt", ".model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A part of a pipeline, as `model_index.json` lists it: a subfolder of this name, and the class that reads it."""

    name: str
    library: str
    kind: str

    @property
    def configuration(self) -> tuple[str, ...]:
        """The files of which one must be there, whatever else is."""
        if "Tokenizer" in self.kind:
            return _TOKENIZER_FILES
        if self.kind.endswith("Scheduler"):
            return ("scheduler_config.json",)
        if self.kind.endswith(("Processor", "FeatureExtractor")):
            return ("preprocessor_config.json",)
        return ("config.json",)

    @property
    def has_weights(self) -> bool:
        """Whether it is a network."""
        return self.configuration == ("config.json",)


def find_folder(model: str) -> Path:
    """Return the folder of `model`: the folder of that name, or its snapshot in the Hugging Face cache.

    Raises:
        GenerationError: neither exists.
    """
    from huggingface_hub import try_to_load_from_cache

    if Path(model).is_dir():
        return Path(model)
    try:
        found = try_to_load_from_cache(model, _INDEX)
    except ValueError:
        found = None
    if not isinstance(found, str):
        raise GenerationError(
            f"Expected the weights of {model} in a folder of that name or in the Hugging Face cache, found neither. "
            f"{_how_to_fetch(model)}"
        )
    return Path(found).parent


def find_files(folder: Path, variant: str, model: str) -> list[Path]:
    """Return every file that loading the pipeline in `folder` reads, in the order of their names.

    Only safetensors count as weights: pickled ones can run code.

    Args:
        folder: of the pipeline.
        variant: of the weights, such as "fp16"; a component without it is read as if none had been asked for.
        model: its name, for the advice how to fetch what is missing.

    Raises:
        GenerationError: naming the files that are missing.
    """
    files, missing = [folder / _INDEX], []
    for component in _read_index(folder, model):
        place = folder / component.name
        if not any((place / name).is_file() for name in component.configuration):
            missing.append(f"{component.name}/{' or '.join(component.configuration)}")
        weights = _weight_files(place, component, variant) if component.has_weights else []
        missing += [f"{component.name}/{path.name}" for path in weights if not path.is_file()]
        texts = [path for path in place.glob("*") if path.suffix in _TEXTS and path.is_file()]
        files += [*texts, *weights]
    if missing:
        pickles = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*.bin"))
        instead = f" There are {pickles}, which are not used because a pickle can run code." if pickles else ""
        raise GenerationError(
            f"Expected a whole pipeline in {folder}, missing {sorted(missing)}.{instead} {_how_to_fetch(model)}"
        )
    return sorted(set(files))


def hash_files(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of each of `files` by its name below `folder`, read in pieces."""
    digests = {}
    for path in files:
        with path.open("rb") as file:
            digests[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _read_index(folder: Path, model: str) -> list[Component]:
    try:
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        pairs = [(name, pair) for name, pair in index.items() if isinstance(pair, list) and len(pair) == 2]
        parts = [(name, *pair) for name, pair in pairs if all(isinstance(part, str) for part in pair)]
        return [Component(name=name, library=library, kind=kind) for name, library, kind in parts]
    except (OSError, ValueError, AttributeError) as error:
        raise GenerationError(
            f"Expected {_INDEX} of a diffusers pipeline in {folder}, found: {error!r}. {_how_to_fetch(model)}"
        ) from None


def _weight_files(place: Path, component: Component, variant: str) -> list[Path]:
    """Return the weight files that `component` is read from; where there are none, the one that should be there."""
    for suffix in dict.fromkeys([f".{variant}" if variant else "", ""]):
        for stem in _STEMS:
            whole = place / f"{stem}{suffix}.safetensors"
            index = place / f"{stem}.safetensors.index{suffix}.json"
            if whole.is_file():
                return [whole]
            if index.is_file():
                return _shards(index)
    return [place / f"{_STEMS[0] if component.library == 'diffusers' else _STEMS[1]}.safetensors"]


def _shards(index: Path) -> list[Path]:
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return sorted({index.parent / name for name in names})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise GenerationError(f"Expected a list of weight files in {index}, found: {error!r}.") from None


def _how_to_fetch(model: str) -> str:
    name = "NAME" if Path(model).is_dir() else model
    return (
        f"Nothing is downloaded here: run `hf download {name} --local-dir FOLDER` on a machine with internet access, "
        "copy FOLDER to this one, and give its path as the model."
    )
