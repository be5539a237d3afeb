"""From class names to prompts, by a TOML file per modality."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, field_validator

from federation.config.table import Table
from federation.errors import GenerationError

_PLACE = "{class}"
_BUNDLED = files("aegis_cache.generation.stable_diffusion").joinpath("prompts")


class PromptTemplate(Table):
    """How a class is put into words.

    Attributes:
        template: the prompt, with `{class}` where the class goes.
        negative: what the images must not look like; "" for nothing.
        classes: the words for each class by its name; None takes the names themselves, their underscores as spaces.
    """

    template: str
    negative: str = ""
    classes: dict[str, str] | None = Field(default=None)

    @field_validator("template")
    @classmethod
    def _hold_a_place(cls, template: str) -> str:
        if _PLACE not in template:
            raise ValueError(f"Expected {_PLACE} in it, where the class goes.")
        return template

    @classmethod
    def of_modality(cls, modality: str) -> Self:
        """Return the template that comes with this package for images of `modality`, such as "chest-xray".

        Raises:
            GenerationError: there is none.
        """
        known = sorted(file.name.removesuffix(".toml") for file in _BUNDLED.iterdir() if file.name.endswith(".toml"))
        if modality not in known:
            raise GenerationError(
                f"Expected a modality that prompts exist for, {known}, found {modality!r}: write a prompt file of your "
                "own, or take 'generic'."
            )
        return cls._parse(_BUNDLED.joinpath(f"{modality}.toml").read_text(encoding="utf-8"), modality)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the template in the TOML file at `path`: `template`, perhaps `negative` and a table `[classes]`.

        Raises:
            GenerationError: the file is missing, or holds anything else.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise GenerationError(f"Expected a prompt file at {path}, found: {error}.") from None
        return cls._parse(text, str(path))

    @classmethod
    def _parse(cls, text: str, where: str) -> Self:
        try:
            return cls.model_validate(tomllib.loads(text))
        except (tomllib.TOMLDecodeError, ValidationError) as error:
            raise GenerationError(f"Expected template, negative and [classes] in {where}, found: {error}") from None

    def fill(self, class_names: Sequence[str]) -> list[str]:
        """Return the prompt of each class.

        Raises:
            GenerationError: a table `[classes]` lacks a class, or two classes have one prompt.
        """
        if self.classes is not None and (missing := sorted(set(class_names) - self.classes.keys())):
            raise GenerationError(
                f"Expected words for every class in [classes], found none for {missing}: add them, or leave out the "
                "table to use the class names themselves."
            )
        words = self.classes or {name: name.replace("_", " ") for name in class_names}
        prompts = [self.template.replace(_PLACE, words[name]) for name in class_names]
        if len(set(prompts)) < len(prompts):
            raise GenerationError(f"Expected a prompt of its own for every class, found {prompts}: change the words.")
        return prompts
