"""Prompts: those that come with the package, those of a hospital, and what a prompt file cannot be."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from aegis_cache.generation.stable_diffusion.prompt_template import PromptTemplate
from federation.errors import GenerationError

ROOT = Path(__file__).parents[4]
MODALITIES = ("abdominal-ct", "breast-ultrasound", "chest-xray", "dermatoscopy", "fundus", "generic", "histology")


def write(folder, text):
    path = folder / "prompts.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("modality", MODALITIES)
def test_every_modality_puts_any_class_into_words(modality):
    prompts = PromptTemplate.of_modality(modality).fill(["healthy", "heart_failure"])

    assert [word in prompt for word, prompt in zip(("healthy", "heart failure"), prompts, strict=True)] == [True] * 2
    assert not any("{" in prompt for prompt in prompts)


def test_prompt_files_are_part_of_the_installed_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    package = "aegis_cache.generation.stable_diffusion"
    patterns = project["tool"]["setuptools"]["package-data"][package]

    shipped = {path.stem for pattern in patterns for path in ROOT.joinpath(*package.split(".")).glob(pattern)}

    assert shipped == set(MODALITIES)


def test_unknown_modality_is_refused_with_the_known_ones():
    with pytest.raises(GenerationError, match=r"'chest-xray'.*found 'thermography'"):
        PromptTemplate.of_modality("thermography")


def test_own_file_maps_classes_to_words(tmp_path):
    path = write(tmp_path, 'template = "scan, {class}"\nnegative = "text"\n[classes]\na = "a mass"\nb = "no mass"\n')

    template = PromptTemplate.read(path)

    assert template.fill(["b", "a"]) == ["scan, no mass", "scan, a mass"]
    assert template.negative == "text"


def test_class_without_words_is_named(tmp_path):
    template = PromptTemplate.read(write(tmp_path, 'template = "scan, {class}"\n[classes]\na = "a mass"\n'))

    with pytest.raises(GenerationError, match=r"found none for \['b'\]"):
        template.fill(["a", "b"])


def test_two_classes_with_one_prompt_are_refused():
    template = PromptTemplate(template="scan, {class}", classes={"a": "a mass", "b": "a mass"})

    with pytest.raises(GenerationError, match="prompt of its own"):
        template.fill(["a", "b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('template = "scan"', r"Expected \{class\}"),
        ('negative = "text"', "template"),
        ('template = "{class}"\nsteps = 3', "steps"),
        ('template = "{class}"\n[classes]\na = 3', "classes.a"),
        ("template = ", "prompts.toml"),
    ],
)
def test_file_that_holds_anything_else_is_refused(tmp_path, text, message):
    with pytest.raises(GenerationError, match=message):
        PromptTemplate.read(write(tmp_path, text))


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(GenerationError, match=r"prompt file at .*nowhere"):
        PromptTemplate.read(tmp_path / "nowhere.toml")
