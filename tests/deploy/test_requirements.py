"""The libraries of an image are those that `pyproject.toml` names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deploy.requirements import read_requirements

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMAGES = sorted((ROOT / "deploy").glob("*/Dockerfile"))
SCRIPT = re.compile(r"requirements\.py pyproject\.toml((?: \w+)*) *>")


def run(*extras: str) -> subprocess.CompletedProcess[str]:
    # As an image does: the file alone, before anything is installed.
    command = [sys.executable, "-I", "-S", str(ROOT / "deploy" / "requirements.py"), str(ROOT / "pyproject.toml")]
    return subprocess.run([*command, *extras], check=False, capture_output=True, text=True)


def test_requirements_of_the_project_are_printed_one_a_line() -> None:
    assert run().stdout.splitlines() == PROJECT["dependencies"]


def test_those_of_named_extras_follow_in_their_order() -> None:
    optional = PROJECT["optional-dependencies"]

    printed = run("clinical", "report").stdout.splitlines()

    assert printed == [*PROJECT["dependencies"], *optional["clinical"], *optional["report"]]


def test_extra_that_there_is_none_of_is_an_error() -> None:
    assert run("reprot").returncode != 0


def test_extras_that_images_name_ask_for_libraries_and_not_for_the_project_itself() -> None:
    asked = [found[1].split() for path in IMAGES for found in SCRIPT.finditer(path.read_text(encoding="utf-8"))]

    assert len(asked) >= 2
    lines = {line for extras in asked for line in read_requirements(ROOT / "pyproject.toml", extras)}
    assert not any(line.startswith(PROJECT["name"]) for line in lines)


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.parent.name)
def test_image_copies_what_it_calls(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert SCRIPT.search(text) is None or "COPY deploy/requirements.py pyproject.toml ./" in text
