"""Prints the libraries that `pyproject.toml` asks for, and those of the extras that are named, one a line.

For images whose libraries are a layer below the project's own code: `requirements.py pyproject.toml [EXTRA ...]`.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def read_requirements(path: Path, extras: list[str]) -> list[str]:
    """Return the requirements in the `pyproject.toml` at `path`, those of `extras` too."""
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


if __name__ == "__main__":
    sys.stdout.write("\n".join(read_requirements(Path(sys.argv[1]), sys.argv[2:])) + "\n")
