"""Both apps and the command start without any extra: what only researchers need is never imported at the top."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = ("ray", "torchvision", "medmnist", "sklearn", "diffusers", "transformers", "matplotlib", "jinja2", "skimage")


@pytest.mark.parametrize("module", ["client_app.main", "server_app.main", "deploy.cli"])
def test_module_imports_with_every_extra_blocked(module: str) -> None:
    block = "".join(f"sys.modules[{name!r}] = None; " for name in EXTRAS)

    finished = subprocess.run(
        [sys.executable, "-c", f"import sys; {block}import {module}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
